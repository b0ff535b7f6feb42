// The phases of Pfeife's search: rating all shapes, exploring those that look good, deepening the
// best, and the warm-ups of the best one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "planner_service/planners/pfeife/finalist.h"
#include "planner_service/planners/pfeife/search_space.h"
#include "planner_service/planners/pfeife/settings.h"

namespace stagewright::pfeife {

// A setting and a linear order, with what even cuts take in its shapes, best first.
struct Candidate {
  LoopedSetting setting;
  size_t order = 0;  // In LinearOrders.
  ChainModel* model = nullptr;
  std::vector<Finalist> shapes;  // With the micro-batches that are searched with.
};

// Good cuts of shapes of an order, a number of devices and loops: where the next ones begin.
using KnownCuts = std::map<std::tuple<size_t, int32_t, int32_t>, std::vector<std::vector<int32_t>>>;

// What even cuts take in the shape of a setting that has no prefetch: those of equal time, then
// those of equal memory; without those whose shape deadlocks.
std::vector<Finalist> EvenCuts(SearchSpace& space, const LoopedSetting& setting, bool recompute);

// The candidates of as many settings as there is effort for, best first.
std::vector<Candidate> RateCandidates(SearchSpace& space,
                                      const std::vector<LoopedSetting>& settings, bool recompute);

// Adds the best cuts of the shapes of a candidate, except of those that are not worth it: known
// cuts take longer in them, or the candidate is far behind others.
void ExploreCandidate(SearchSpace& space, const Candidate& candidate, KnownCuts& known,
                      Finalists& finalists);

// Searches the cuts of the best shapes with a wider beam.
void Deepen(SearchSpace& space, Finalists& finalists);

// Searches the warm-ups of the best, one device after the other, and its cuts again (deviation 6),
// until neither helps. REQUIRES: there is a best.
void Polish(SearchSpace& space, Finalists& finalists);

}  // namespace stagewright::pfeife
