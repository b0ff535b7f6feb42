// In which order devices sum the gradients of micro-batches, where they do so after each backward
// pass (Reduction::each_pass).
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/lowering/channels.h"
#include "common/lowering/compute_order.h"
#include "common/program/program.h"

namespace stagewright {

// All replicas of a stage sum what their passes over a micro-batch made.
struct MicroBatchSum {
  StageId stage;
  int64_t index = 0;  // The micro-batch's.
};

// Those of the stages in `summed` (by stage), in an order that all devices can follow: a pass waits
// for the sum of what its stage's pass before it made, and sums follow each other as if every pass
// took equally long. Where the orders of devices do not allow for such waits, what cannot be
// reached comes last, and Validate finds the deadlock. O(tasks + pieces, sums sorted).
std::vector<MicroBatchSum> SumOrder(const std::vector<std::vector<Task>>& orders,
                                    const std::vector<ProgramStage>& stages, const Slots& slots,
                                    const Channels& channels, const std::vector<bool>& summed);

}  // namespace stagewright
