// What the devices hold at most.
//
// The rules are those of common/lowering/lower.h: a forward pass takes what its backward pass
// needs; a receive takes its buffer when it is posted (receive_posting.h); a message is under way
// once it is sent and its receive is posted, one after the other between two slices; a gradient
// stays at its sender until then. An estimate only in how messages share links.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/units.h"
#include "common/lowering/receive_posting.h"
#include "planner_service/planners/pfeife/dependency_graph.h"

namespace stagewright::pfeife {

// Bytes by slice, of one micro-batch but for `resident`. What slices exchange: SliceCosts.
struct SliceMemory {
  std::vector<Bytes> resident;   // Parameters, gradients, optimizer state.
  std::vector<Bytes> saved;      // From the forward to the backward pass.
  std::vector<Bytes> outputs;    // Kept likewise, only as roots of the backward pass.
  std::vector<Bytes> workspace;  // While a pass runs.
};

class PeakMemory {
 public:
  // With `recompute`, a pass that runs the forward pass again comes before every backward pass,
  // whose time includes it. O(passes). REQUIRES: the shape does not deadlock.
  PeakMemory(const LoopedShape& shape, bool recompute, ReceivePosting posting = {});

  // Peak memory by position in the pipeline: on chains, of what the evaluator finds, at most 3 %
  // less and 10 % more; where messages are a large part of it (tangled graphs, recomputation), up
  // to a message more. O(p log p) for p passes and messages.
  std::vector<Bytes> Estimate(const SliceMemory& memory, const SliceCosts& costs);

  // At least as much, whenever passes run. O(slices + messages).
  std::vector<Bytes> AtMost(const SliceMemory& memory, const SliceCosts& costs) const;

 private:
  // Bytes that one slice exchanges for one micro-batch.
  struct Flow {
    Bytes received = 0;      // Activations from other devices.
    Bytes read = 0;          // Activations that the backward pass gives back.
    Bytes sent = 0;          // Activations, where nothing else keeps them.
    Bytes made = 0;          // Gradients for earlier slices.
    Bytes returned = 0;      // Gradients from later slices on other devices.
    Bytes all_returned = 0;  // Gradients from all later slices.
  };
  // Micro-batches of a slice at once: between forward and backward pass, and with the activations
  // or gradients for it received or about to be.
  struct Held {
    int32_t kept = 0;
    int32_t received = 0;
    int32_t returned = 0;
  };
  // When and how much is given back.
  using Release = std::pair<double, Bytes>;
  class Device;

  void CountHeld();
  std::vector<Flow> FlowsOf(const SliceCosts& costs) const;
  std::vector<std::vector<Release>> ReleasesOf(const SliceCosts& costs) const;
  bool Local(const SliceCosts::Message& message) const {
    return shape_.device_of(message.from) == shape_.device_of(message.to);
  }

  LoopedShape shape_;
  bool recompute_;
  Timeline timeline_;
  std::vector<Held> most_held_;  // By slice.
  TimelineCosts costs_;
};

}  // namespace stagewright::pfeife
