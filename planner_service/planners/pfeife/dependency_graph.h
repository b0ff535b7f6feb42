// The operation dependency graph of a looped schedule and its longest path: Pfeife's estimate of
// the time of a step (section 3.3).
//
// Vertices are passes (slice, micro-batch, direction). A pass follows the one before it on its
// device, and after a message the passes that produce what it reads: forward passes of earlier
// slices, backward passes of later ones. Links carry any number of messages at once, and a message
// leaves when its pass ends. Weights: the time of a pass on its vertex, of a message on its edge.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/units.h"
#include "planner_service/models/timeline.h"
#include "planner_service/planners/pfeife/looped_shape.h"

namespace stagewright::pfeife {

// What slices cost and exchange for one micro-batch. Times in ns.
struct SliceCosts {
  struct Message {
    int32_t from = 0;  // Earlier slice.
    int32_t to = 0;    // Later slice. On the same device, a message takes no time.
    double there = 0;  // Time of the activation.
    double back = 0;   // Time of its gradient; negative: none comes back.
    Bytes back_bytes = 0;
    Bytes there_bytes = 0;
    friend bool operator==(const Message&, const Message&) = default;
  };
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<Message> messages;  // By (from, to), unique.
};

// How often a path runs through what: its length is linear in the costs, so that it bounds from
// below the longest path of any other slices for which the same path exists.
struct PathCounts {
  std::vector<int32_t> forward;   // By slice.
  std::vector<int32_t> backward;  // By slice.
  struct Hop {
    int32_t from = 0;
    int32_t to = 0;
    int32_t there = 0;
    int32_t back = 0;
  };
  std::vector<Hop> hops;  // By (from, to), unique.
};

// The length of this path for other slices; -1 if one of its messages does not exist there.
// O(slices + messages).
double PathLength(const PathCounts& path, const SliceCosts& costs);

// The slices' passes in topological order, the first of them posted by `posting`; with `recompute`,
// a pass that runs the forward pass again comes before every backward pass. O(passes).
PassLanes LanesOf(const LoopedShape& shape, const std::vector<SlicePass>& passes, bool recompute,
                  std::optional<ReceivePosting> posting);

// What the timeline is to know of `slices`; backward times include recomputation. O(slices +
// messages).
void ToTimelineCosts(const SliceCosts& slices, bool recompute, TimelineCosts& costs);

// A timeline with unlimited links.
class DependencyGraph {
 public:
  // nullopt if the shape deadlocks. O(passes).
  static std::optional<DependencyGraph> Create(const LoopedShape& shape);

  const LoopedShape& shape() const { return shape_; }
  // Vertices: what one evaluation has to visit.
  int64_t size() const { return std::ssize(timeline_.lanes().passes()); }

  // The longest path, ns. O(passes + messages * micro-batches). Keeps when passes end.
  double LongestPath(const SliceCosts& costs);

  // When a pass starts, by the last LongestPath.
  double Start(const SlicePass& pass) const;
  // The passes on one of the longest paths of the last LongestPath, first to last, and its counts.
  // O(path * messages of a slice).
  std::vector<SlicePass> CriticalPasses() const;
  PathCounts CriticalPath() const;

 private:
  DependencyGraph(const LoopedShape& shape, const std::vector<SlicePass>& passes);

  LoopedShape shape_;
  Timeline timeline_;
  std::vector<int32_t> previous_;  // By position: the pass before it on its device; -1: none.
  TimelineCosts costs_;
};

}  // namespace stagewright::pfeife
