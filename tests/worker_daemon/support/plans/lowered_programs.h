// The programs of a plan.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "common/strategy/strategy.h"

namespace stagewright::testing {

// A strategy lowered for training and for evaluation, and checked.
struct Programs {
  std::shared_ptr<const Program> training;
  std::shared_ptr<const Program> evaluation;
};
absl::StatusOr<Programs> LowerBoth(const Graph& graph, const Strategy& strategy,
                                   bool gradient_norm = false);

}  // namespace stagewright::testing
