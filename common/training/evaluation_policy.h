// When a job evaluates while it trains, and when it stops because it gets no better.
#pragma once

#include <cstdint>

#include "common/base/status.h"

namespace stagewright {

struct EvaluationPolicy {
  // After every so many steps; 0: at the end only.
  int64_t every = 0;
  // Training ends after so many evaluations in a row whose loss is not less than the best one
  // before by more than min_delta; 0: never. All devices decide alike, from the same figures.
  int64_t patience = 0;
  double min_delta = 0;

  friend bool operator==(const EvaluationPolicy&, const EvaluationPolicy&) = default;
};

// INVALID_ARGUMENT names the field: none negative, patience needs evaluations, and these need
// `has_data`. `of` goes before fields.
absl::Status Check(const EvaluationPolicy& policy, bool has_data, absl::string_view of = "");

}  // namespace stagewright
