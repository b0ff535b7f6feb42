#include "planner_service/planner/search_context.h"

#include <algorithm>

namespace stagewright {

int64_t EffortOfJudging(const Strategy& strategy) {
  constexpr int64_t kEffortPerShare = 8;  // A replica's micro-batch: passes, transfers, memory.
  int64_t shares = 0;
  for (const Stage& stage : strategy.stages) {
    shares += static_cast<int64_t>(stage.devices.size()) *
              (strategy.mini_batch / std::max<int64_t>(1, stage.micro_batch));
  }
  return kEffortPerShare * shares;
}

}  // namespace stagewright
