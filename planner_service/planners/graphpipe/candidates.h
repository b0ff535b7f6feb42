// The outer loop of the search: which partitions are worth simulating.
//
// Algorithm 1 minimises the bottleneck's time per sample t. The iteration time also depends on the
// depth of the pipeline, about t * (mini-batch + samples in flight at the deepest stage), and on
// messages. So for each micro-batch size and a few device limits, the partition of least t is
// followed by the partitions of least t with fewer samples in flight, as long as their estimate can
// still win. Candidates are estimated, and the promising ones are judged by the evaluator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/graphpipe/partition_search.h"

namespace stagewright {

// A linear order with the edges its stages will have.
struct SearchSpace {
  StrategyKind kind = StrategyKind::kGraph;
  const StageOracle* oracle = nullptr;
  const Frontier* frontier = nullptr;
};

struct Candidate {
  Partition partition;
  Strategy strategy;
  double estimate = 0;  // Iteration time, ns.
  std::string text;     // Of the partition and its samples in flight.
};

struct CandidateOptions {
  PlanOptions plan;
  double memory_share = 1;
  double to_beat = 0;  // Iteration time, ns: only candidates that may be faster; 0: any.
};

// Micro-batch sizes worth trying: `forced` if not 0, else the divisors of the mini-batch, of many
// only those next to powers of two. Ascending.
std::vector<int64_t> MicroBatchSizes(int64_t mini_batch, int64_t forced);

// Candidates of one space, best estimate first, equal partitions once. Empty if nothing fits, or if
// the context expired at once. Adds to `states`.
std::vector<Candidate> FindCandidates(const SearchSpace& space, const CandidateOptions& options,
                                      const SearchContext& context, int64_t& states);

}  // namespace stagewright
