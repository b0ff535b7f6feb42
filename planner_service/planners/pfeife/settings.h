// What Pfeife's outer loop goes over: devices in order, micro-batch sizes, loops and shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/pfeife/looped_shape.h"

namespace stagewright::pfeife {

// Loops per device that are tried where the options leave the choice; the published planner's.
inline constexpr int32_t kMostLoops = 3;

// What one pass of the outer loop searches.
struct LoopedSetting {
  std::vector<int32_t> devices;  // Device ids in pipeline order.
  int32_t loops = 1;
  int64_t samples = 1;  // Per micro-batch.
};

// Sizes of micro-batches to try: the largest with at least D, 2 D, 4 D and 8 D micro-batches per
// step, or the smallest there is, in this order; the option's where it forces one.
std::vector<int64_t> SizesThatFill(const Problem& problem, int32_t devices,
                                   const PlanOptions& options);

// Most promising first: all devices (as listed and, where they differ, by falling and by rising
// speed), then half of them, a quarter, ..., one. Each with 1 to kMostLoops loops, as far as there
// are operators and the options let it.
std::vector<LoopedSetting> Settings(const Problem& problem, const PlanOptions& options);

// Shapes for D devices: of PossibleShapes those with B_l of D, 2 D and B, and prefetch 0, 1, 2, 3,
// 5, 8, 13, ... `micro_batches` may be fewer than the step has, see Shortened.
std::vector<LoopedShape> Shapes(int32_t devices, int32_t loops, int32_t micro_batches);

// Micro-batches of a step that are searched with. In the middle of a long step all devices repeat
// themselves, so that it says nothing new about cuts: a multiple of D that does not exceed 8 D, or
// all where there are no more.
int64_t Shortened(int64_t micro_batches, int32_t devices);

}  // namespace stagewright::pfeife
