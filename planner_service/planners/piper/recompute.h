// Which operators of a stage recompute: the least extra time that brings it within its memory.
#pragma once

#include <cstdint>
#include <vector>

namespace stagewright {

// An operator that may recompute: what it costs, and what it gives. Both positive.
struct RecomputeItem {
  double time = 0;
  double bytes = 0;
};

struct RecomputeAnswer {
  double time = 0;
  std::vector<bool> chosen;  // By item.
  bool exact = true;         // Proven least; false if the search was cut short.
};

// A covering knapsack: the least total time of items that give at least `needed` bytes together.
// Branch and bound over the items by falling bytes per time, with the linear relaxation as bound
// and the greedy choice to start from; after `most_steps` branches the best so far. REQUIRES: all
// items together give enough. O(n log n + steps).
RecomputeAnswer ChooseRecompute(const std::vector<RecomputeItem>& items, double needed,
                                int64_t most_steps);

}  // namespace stagewright
