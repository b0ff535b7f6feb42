// What happens at a step whose loss or gradients are not finite.
#pragma once

#include "common/training/names.h"

namespace stagewright {

enum class NonFinite {
  kStop,      // The step fails.
  kSkip,      // No device updates anything: needs a program that sums the gradients' norm.
  kContinue,  // Updates as if nothing were wrong, as PyTorch does.
};

inline constexpr Named<NonFinite> kNonFiniteNames[] = {
    {NonFinite::kStop, "stop"}, {NonFinite::kSkip, "skip"}, {NonFinite::kContinue, "continue"}};

}  // namespace stagewright
