// Pfeife's schedule space: looped one-forward-one-backward schedules with prefetch.
//
// Device r of D runs the slices r, r + D, r + 2D, ... of S in linear order. Micro-batches pass in
// groups of B_l: a device takes a group through its first slice, then through its next, and so on,
// and the gradients back in the opposite order. Each device runs `warm_up` forward passes before
// its first backward pass and alternates from then on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stagewright::pfeife {

struct LoopedShape {
  int32_t devices = 1;        // D.
  int32_t loops = 1;          // N_l; slices = loops * devices.
  int32_t micro_batches = 1;  // B.
  int32_t loop_batch = 1;     // B_l; the last group of a step may be smaller.
  // By device: forward passes before the first backward pass, in [1, loops * micro_batches].
  std::vector<int32_t> warm_up;

  int32_t slices() const { return devices * loops; }
  int32_t device_of(int32_t slice) const { return slice % devices; }
  friend bool operator==(const LoopedShape&, const LoopedShape&) = default;
};

// The least warm-up of device r that keeps the pipeline moving, (N_l - 1) * B_l + D - r, and B_f[r]
// more (section 3.4 and appendix B.1), within its range.
std::vector<int32_t> WarmUp(const LoopedShape& shape, const std::vector<int32_t>& prefetch);

// The shape with B_f[r] = min(prefetch, D - 1 - r): the last device cannot prefetch.
LoopedShape MakeShape(int32_t devices, int32_t loops, int32_t micro_batches, int32_t loop_batch,
                      int32_t prefetch);

// All such shapes for D, N_l and B: B_l over B and the divisors of B that are at least D (with one
// loop, B alone), prefetch over 0 ... D - 1. Shapes with equal orders are there once.
std::vector<LoopedShape> PossibleShapes(int32_t devices, int32_t loops, int32_t micro_batches);

// "B8 loops2 batch4 warm-up 8,7,6,5".
std::string ToString(const LoopedShape& shape);

struct SlicePass {
  int32_t slice = 0;
  int32_t micro_batch = 0;
  bool backward = false;
  friend bool operator==(const SlicePass&, const SlicePass&) = default;
};

// What each device runs, in order.
std::vector<std::vector<SlicePass>> DevicePasses(const LoopedShape& shape);

// All passes in an order in which each comes after the one before it on its device, after the
// forward passes of earlier slices on the same micro-batch and, if backward, after the backward
// passes of later slices. nullopt: the shape deadlocks (a device waits for itself). O(passes).
std::optional<std::vector<SlicePass>> TopologicalPasses(const LoopedShape& shape);

}  // namespace stagewright::pfeife
