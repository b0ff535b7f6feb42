// Whether the replicas of a stage each keep all of the optimizer's state and of the gradients, or a
// share.
//
// Reference: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter
// models", SC 2020, sections 5.1 and 5.2.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stagewright {

enum class OptimizerSharding : uint8_t {
  // Each replica sums all gradients (all-reduce) and updates all parameters.
  kNone,
  // ZeRO-1: each replica sums the gradients of its share of the parameters (reduce-scatter), has
  // the optimizer's state of that share and updates it; then all exchange what they have updated
  // (all-gather). Parameters that several stages hold stay whole.
  kStates,
  // ZeRO-2: the same, and between micro-batches each replica keeps the gradients of its share
  // alone: those of a micro-batch are summed after its backward pass and added to what is there.
  kGradients,
};

const char* OptimizerShardingName(OptimizerSharding sharding);  // "none", "states", "gradients"
// The inverse; nothing for other texts.
std::optional<OptimizerSharding> ParseOptimizerSharding(std::string_view name);

}  // namespace stagewright
