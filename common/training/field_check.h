// How checks of a specification word what is wrong: the field, then what it must be.
#pragma once

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/status.h"

namespace stagewright {

// INVALID_ARGUMENT: `of` (such as "spec."; may be empty), the field, a blank and what is wrong.
template <typename... What>
absl::Status WrongField(absl::string_view of, absl::string_view field, const What&... what) {
  const std::string name = absl::StrCat(of, field);
  return WithField(absl::InvalidArgumentError(absl::StrCat(name, " ", what...)), name);
}

// Each refuses NaN, too.
inline bool IsPositive(double value) { return value > 0 && std::isfinite(value); }
inline bool IsNotNegative(double value) { return value >= 0 && std::isfinite(value); }

inline absl::Status CheckPositive(absl::string_view of, absl::string_view field, double value) {
  if (IsPositive(value)) return absl::OkStatus();
  return WrongField(of, field, "must be positive and finite, is ", value);
}

inline absl::Status CheckNotNegative(absl::string_view of, absl::string_view field, double value) {
  if (IsNotNegative(value)) return absl::OkStatus();
  return WrongField(of, field, "must be finite and not negative, is ", value);
}

inline absl::Status CheckNotNegative(absl::string_view of, absl::string_view field, int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return WrongField(of, field, "must not be negative, is ", value);
}

}  // namespace stagewright
