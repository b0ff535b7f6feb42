#include "planner_service/planners/dapple/objective.h"

#include <algorithm>

namespace stagewright::dapple {

Pivot LatencyAsInPaper(const std::vector<StageLoad>& stages, int64_t micro_batches,
                       PivotSum pivot_sum) {
  // The paper's stages: every second one is a network stage.
  const auto count = static_cast<int32_t>(2 * stages.size()) - 1;
  const auto forward = [&](int32_t s) {
    return s % 2 == 0 ? stages[s / 2].forward : stages[s / 2 + 1].transfer;
  };
  const auto backward = [&](int32_t s) {
    return s % 2 == 0 ? stages[s / 2].backward : stages[s / 2 + 1].transfer;
  };
  const auto all_reduce = [&](int32_t s) { return s % 2 == 0 ? stages[s / 2].all_reduce : 0; };
  const auto steady = [&](int32_t s) {
    return static_cast<double>(micro_batches - 1) * (forward(s) + backward(s));
  };
  int32_t q = count - 1;
  double between = 0;  // Forward and backward of the stages strictly between s and Q.
  for (int32_t s = count - 2; s >= 0; --s) {
    if (steady(s) > steady(q) + between) {
      q = s;
      between = 0;
    } else {
      between += forward(s) + backward(s);
    }
  }
  Pivot pivot;
  pivot.stage = q;
  for (int32_t s = 0; s <= q; ++s) pivot.warm_up += forward(s);
  pivot.steady = steady(q);
  // sum of B_a from s to Q before the pivot, minus that from Q to s behind it.
  double passes = backward(q);
  pivot.ending =
      pivot_sum == PivotSum::kAsPrinted ? all_reduce(q) - passes : all_reduce(q) + passes;
  for (int32_t s = q - 1; s >= 0; --s) {
    passes += backward(s);
    pivot.ending = std::max(pivot.ending, all_reduce(s) + passes);
  }
  passes = backward(q);
  for (int32_t s = q + 1; s < count; ++s) {
    passes += backward(s);
    pivot.ending = std::max(pivot.ending, all_reduce(s) - passes);
  }
  return pivot;
}

double LatencyAsCoded(const CodedPlan& plan) {
  double block = 0;
  double transfers = 0;
  for (const StageLoad& stage : plan.stages) {
    block =
        std::max({block, stage.forward + stage.backward, plan.steady_transfers * stage.transfer});
    transfers += stage.transfer;
  }
  double late = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    late = std::max(late, plan.stages[i].all_reduce - static_cast<double>(i) * block);
  }
  return block * static_cast<double>(plan.micro_batches - 1) + plan.one_device + transfers + late;
}

}  // namespace stagewright::dapple
