// The outer loop of the search: which partitions are worth simulating.
//
// Algorithm 1 minimises the bottleneck's time per sample t. The iteration time also depends on the
// depth of the pipeline, about t * (mini-batch + samples in flight at the deepest stage), and on
// messages. So for each micro-batch size and a few device limits, the partition of least t is
// followed by the partitions of least t with fewer samples in flight, as long as the work alone can
// still win. What they find gets a layout; those whose closed estimate can win are timed by
// StageTimeline, with more samples in flight and replicas on other nodes where messages ask for it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/graphpipe/layout.h"

namespace stagewright {

// A linear order with the edges its stages will have.
struct SearchSpace {
  StrategyKind kind = StrategyKind::kGraph;
  const StageOracle* oracle = nullptr;
  const Frontier* frontier = nullptr;
  // Ranges of the oracle and the frontier; needed to find candidates.
  StageRanges* ranges = nullptr;
};

struct Candidate {
  StrategyKind kind = StrategyKind::kGraph;
  const StageOracle* oracle = nullptr;
  Partition partition;
  Layout layout;
  double estimate = 0;  // Iteration time, ns.
  std::string text;     // Names the partition and how it is laid out.
};

struct CandidateOptions {
  PlanOptions plan;
  double memory_share = 1;
  double to_beat = 0;  // Iteration time, ns: only candidates that may be faster; 0: any.
  // Micro-batch sizes whose forward and backward passes, with all devices in use, are more than
  // this are left out, unless they are asked for.
  int64_t most_actions = std::numeric_limits<int64_t>::max();
};

// Candidates of one space, best estimate first, equal partitions once. Empty if nothing fits, or if
// the context expired at once. Adds to `states`.
std::vector<Candidate> FindCandidates(const SearchSpace& space, const CandidateOptions& options,
                                      const SearchContext& context, int64_t& states);

}  // namespace stagewright
