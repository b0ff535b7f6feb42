// How long operators of a stage took. No LibTorch in this header.
#pragma once

#include <cstdint>

#include "common/base/ids.h"
#include "common/base/units.h"

namespace stagewright {

// One operator in passes of its stage over one number of samples.
struct OperatorTimes {
  StageId stage;
  NodeId node;
  int64_t samples = 0;
  int64_t forwards = 0;   // Passes that ran it forward, repeated ones among them.
  int64_t backwards = 0;  // Backward passes of the stage; the halves of one count once.
  Nanos forward = 0;      // All of them together.
  Nanos backward = 0;
};

}  // namespace stagewright
