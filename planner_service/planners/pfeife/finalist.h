// What Pfeife's search found for its shapes, best first, between the beams and the simulator.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "planner_service/planners/pfeife/chain_model.h"
#include "planner_service/planners/pfeife/looped_shape.h"
#include "planner_service/planners/pfeife/split_search.h"

namespace stagewright::pfeife {

struct Finalist {
  ChainModel* model = nullptr;
  std::vector<int32_t> devices;
  LoopedShape shape;  // With all micro-batches of the step.
  Cuts cuts;          // Its time is that of the whole step.
};

// Less memory beyond the budget, then less time.
bool Better(const Finalist& a, const Finalist& b);

// As it is searched, with fewer micro-batches where the step is long (Shortened in settings.h).
LoopedShape Short(LoopedShape shape);

// The other way: with all micro-batches of a step of `mini_batch` samples, and its time. O(slices).
Finalist Lengthened(Finalist finalist, int64_t mini_batch);

class Finalists {
 public:
  // `finalist` is Lengthened. O(finalists).
  void Add(Finalist finalist);
  void clear() { finalists_.clear(); }

  // Some cuts are within the memory by estimate.
  bool fit() const { return !finalists_.empty() && best().cuts.excess == 0; }
  // REQUIRES: there is one.
  const Finalist& best() const { return finalists_.front(); }
  const std::vector<Finalist>& all() const { return finalists_; }  // Best first.
  // The least of all that were ever added, cleared or not.
  double least_excess() const { return least_excess_; }

 private:
  std::vector<Finalist> finalists_;
  double least_excess_ = std::numeric_limits<double>::max();
};

}  // namespace stagewright::pfeife
