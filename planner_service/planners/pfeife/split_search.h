// Beam search for the split points of one schedule (algorithm 1, lines 5 to 25).
//
// A neighbour moves one split point, alone or with all others in proportion. The beam keeps the
// best cuts seen; each is expanded once, best first, until none is left.
//
// What makes it fast: the critical path of cuts that were evaluated before is a path of most other
// cuts, too, and its length there, a sum over slices, is a bound from below. Cuts that such a bound
// keeps out of the beam are never evaluated (PathLength in dependency_graph.h). The answer is the
// same as without bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/pfeife/chain_model.h"
#include "planner_service/planners/pfeife/dependency_graph.h"

namespace stagewright::pfeife {

struct Cuts {
  std::vector<int32_t> points;  // 0, split points, number of operators.
  double time = 0;              // Estimated step, ns.
  double excess = 0;            // Memory beyond the budget of the worst device, as a share of it.
};

struct BeamOptions {
  int32_t width = 32;  // L_K.
  int32_t reach = 10;  // A move goes up to this many operators, and by longer strides beyond.
  double memory = 1;   // Share of the devices' memory that may be used.
  bool bounds = true;  // False: evaluate every neighbour, for comparison.
};

// Effort of a search, over all its schedules.
struct Effort {
  int64_t passes = 0;       // Vertices visited, or as much other work.
  int64_t most_passes = 0;  // The search ends when `passes` reaches it.
  int64_t evaluated = 0;    // Cuts whose longest path was computed.
  int64_t bounded = 0;      // Cuts that a bound ruled out.
  int64_t told = 0;         // Passes that the context knows of.

  // Whether the search is over; tells the context of the passes since it was last asked.
  bool Ended(const SearchContext& context) {
    const Nanos since = work::kLoopedPass * (passes - std::exchange(told, passes));
    return context.Expired(since) || passes >= most_passes;
  }
};

class SplitSearch {
 public:
  // Position i of `devices` runs slices i, i + D, ... What is referenced outlives the search.
  SplitSearch(ChainModel& model, std::vector<int32_t> devices, const BeamOptions& options,
              SearchContext& context, Effort& effort);

  // The beam in the end, best first; empty if the shape deadlocks. `starts` are cuts to begin with.
  // Time of one neighbour: O(slices) where a bound holds, else O(passes).
  std::vector<Cuts> Run(const LoopedShape& shape, const std::vector<std::vector<int32_t>>& starts);

  // The estimate for one shape and its cuts, ns; -1 if the shape deadlocks.
  double TimeOf(const LoopedShape& shape, const std::vector<int32_t>& points);
  // The estimate for one shape and its cuts, and the memory; nullopt if the shape deadlocks.
  std::optional<Cuts> Rate(const LoopedShape& shape, const std::vector<int32_t>& points);

 private:
  bool Ended() const { return effort_.Ended(context_); }
  std::optional<DependencyGraph> MakeGraph(const LoopedShape& shape) const;
  void Consider(std::vector<int32_t> points);
  bool TooBusy(double most);
  bool TooLong(double most);
  void Remember(PathCounts path);
  double Excess(const std::vector<int32_t>& points);
  void Expand(const std::vector<int32_t>& points);
  std::vector<int32_t> Moved(const std::vector<int32_t>& points, size_t which, int32_t to) const;

  ChainModel& model_;
  std::vector<int32_t> devices_;
  BeamOptions options_;
  SearchContext& context_;
  Effort& effort_;
  std::vector<int32_t> strides_;
  // What follows belongs to one run.
  struct Entry {
    Cuts cuts;
    bool expanded = false;
  };
  std::optional<DependencyGraph> graph_;
  std::optional<PeakMemory> peak_memory_;
  SliceCosts slices_;
  std::vector<double> work_;       // By device.
  std::vector<PathCounts> paths_;  // Most useful first.
  std::vector<Entry> beam_;
  absl::flat_hash_set<std::vector<int32_t>> seen_;
};

}  // namespace stagewright::pfeife
