// Short forms for absl::Status.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define STAGEWRIGHT_CONCAT_INNER(a, b) a##b
#define STAGEWRIGHT_CONCAT(a, b) STAGEWRIGHT_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()); declares or assigns x.
#define ASSIGN_OR_RETURN(lhs, expression) \
  ASSIGN_OR_RETURN_IMPL(STAGEWRIGHT_CONCAT(status_or_, __LINE__), lhs, expression)
#define ASSIGN_OR_RETURN_IMPL(temporary, lhs, expression) \
  auto temporary = (expression);                          \
  if (!temporary.ok()) return temporary.status();         \
  lhs = std::move(temporary).value()

namespace stagewright {

// `status` with that message, and its details (error_details.h).
inline absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  absl::Status said(status.code(), message);
  status.ForEachPayload(
      [&](absl::string_view key, const absl::Cord& value) { said.SetPayload(key, value); });
  return said;
}

// The same with `context` and ": " in front of its message.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return WithMessage(status, absl::StrCat(context, ": ", status.message()));
}

}  // namespace stagewright
