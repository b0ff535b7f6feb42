#include "common/training/optimizer_sharding.h"

#include "common/base/check.h"

namespace stagewright {

const char* OptimizerShardingName(OptimizerSharding sharding) {
  switch (sharding) {
    case OptimizerSharding::kNone:
      return "none";
    case OptimizerSharding::kStates:
      return "states";
    case OptimizerSharding::kGradients:
      return "gradients";
  }
  CHECK(false);
}

std::optional<OptimizerSharding> ParseOptimizerSharding(std::string_view name) {
  for (OptimizerSharding sharding :
       {OptimizerSharding::kNone, OptimizerSharding::kStates, OptimizerSharding::kGradients}) {
    if (name == OptimizerShardingName(sharding)) return sharding;
  }
  return std::nullopt;
}

}  // namespace stagewright
