#include "planner_service/planners/dapple/objective.h"

#include <algorithm>

namespace stagewright::dapple {

Pivot LatencyAsInPaper(const std::vector<StageTimes>& stages, int64_t micro_batches) {
  // F, B and AR by the paper's stages.
  std::vector<StageTimes> all;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (s > 0) all.push_back({stages[s].transfer, stages[s].transfer, 0, 0});
    all.push_back(stages[s]);
  }
  const auto count = static_cast<int32_t>(all.size());
  const auto steady = [&](int32_t s) {
    return static_cast<double>(micro_batches - 1) * (all[s].forward + all[s].backward);
  };
  int32_t q = count - 1;
  double between = 0;  // Forward and backward of the stages strictly between s and Q.
  for (int32_t s = count - 2; s >= 0; --s) {
    if (steady(s) > steady(q) + between) {
      q = s;
      between = 0;
    } else {
      between += all[s].forward + all[s].backward;
    }
  }
  Pivot pivot;
  pivot.stage = q;
  for (int32_t s = 0; s <= q; ++s) pivot.warm_up += all[s].forward;
  pivot.steady = steady(q);
  // sum of B_a from s to Q before the pivot, minus that from Q to s behind it.
  double backward = 0;
  for (int32_t s = q; s >= 0; --s) {
    backward += all[s].backward;
    pivot.ending = std::max(pivot.ending, all[s].all_reduce + backward);
  }
  backward = all[q].backward;
  for (int32_t s = q + 1; s < count; ++s) {
    backward += all[s].backward;
    pivot.ending = std::max(pivot.ending, all[s].all_reduce - backward);
  }
  return pivot;
}

double LatencyAsCoded(const CodedPlan& plan) {
  double block = 0;
  double transfers = 0;
  for (const StageTimes& stage : plan.stages) {
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
