// DAPPLE's planning algorithm (section IV-C) over a chain of layers.
//
//   paper               here                        meaning
//   N, G                chain.size(), devices()     layers, devices
//   T_PL(j, m, g)       Complete                    the first j layers are planned on the m devices
//                                                   of g; the rest is one stage on all others
//   D(G, m)             Placements::Next            device sets of the three policies
//   L, Q, F_s, B_s, AR  objective.h
//   M                   micro_batches
//
// Recurrence (formulas 4 and 5): from a plan of the first j layers, the next stage takes layers up
// to j' and m' devices by one of the three policies, and what is left becomes the last stage:
// T_PL(j', m + m', g + g') = L. The best of all T_PL is the answer; with j = 0 that is plain data
// parallelism, which the published program leaves out.
//
// Complexity: O(N^2 G O W) plans for O occupancies and W labels each; every plan takes O(S) for S
// stages. A stage may not take longer than the best latency over M, nor leave the rest with so
// few devices that it must; that leaves a few m' for each j'.
//
// Deviations from the paper (4 to 9: dapple.cc, 10: objective.h):
//  1. Labels. A state is the number of devices used of each node, and keeps W labels, because L is
//     not a sum of what precedes and what follows. Labels are compared not by T_PL but by the L
//     that they had if the rest were spread evenly over all other devices for free: one replicated
//     stage says little about a rest that will be a straight pipeline, because of its all-reduce. A
//     label that is worse than the plans to keep even then is dropped.
//  2. Bounded search. Layers beyond kMostCuts are joined with a neighbour, and at each j no more
//     than a fixed number of plans is tried, best labels first. Beyond 64 devices the replicas of a
//     stage grow by G / 64 at a time.
//  3. Idle devices. Micro-batches too small for all remaining devices leave some idle.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/dapple/objective.h"
#include "planner_service/planners/dapple/placement.h"

namespace stagewright::dapple {

// Cumulative by position 0 ... layers, for one micro-batch.
struct ChainCosts {
  // [m - 1]: m times the seconds of an m-th part of a micro-batch; one table stands for all m.
  std::vector<std::vector<double>> forward, backward;
  std::vector<double> least;       // No more than forward + backward of any m.
  std::vector<double> parameters;  // Bytes of gradients.
  std::vector<double> boundary;    // Bytes over the cut at a position; not cumulative.

  int32_t size() const { return static_cast<int32_t>(parameters.size()) - 1; }
};

struct ChainStage {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t devices = 0;  // A set of Placements.
};

struct ChainPlan {
  std::vector<ChainStage> stages;
  double latency = 0;
};

enum class Ranking { kPaper, kCoded };

struct SearchOptions {
  Ranking ranking = Ranking::kPaper;
  PivotSum pivot_sum = PivotSum::kAfterBackward;  // With kPaper.
  int64_t micro_batches = 1;
  // With kCoded, the mini-batch runs as so many copies of the pipeline, each with micro_batches.
  // Every stage has a multiple of it as replicas.
  int32_t copies = 1;
  int32_t most_replicas = std::numeric_limits<int32_t>::max();
  int32_t most_stages = 0;    // 0: any.
  bool exact_stages = false;  // Exactly most_stages stages.
  size_t keep = 4;            // Plans to return.
  size_t width = 3;           // Labels of a state.
  // Whether a stage fits its devices with one micro-batch in flight; empty: always.
  std::function<bool(int32_t begin, int32_t end, int32_t replicas)> fits;
};

struct SearchResult {
  std::vector<ChainPlan> plans;  // Best first, at most `keep`.
  int64_t visited = 0;           // Plans rated.
};

// Plans of the whole chain. Empty if nothing fits. `placements` grows. Stops early if the context
// expires. Deterministic.
SearchResult SearchChain(const ChainCosts& costs, const Network& network, Placements& placements,
                         const SearchOptions& options, const SearchContext& context);

// The latency of any plan under the same ranking.
double LatencyOf(const ChainCosts& costs, const Network& network, const Placements& placements,
                 const SearchOptions& options, const std::vector<ChainStage>& stages);

}  // namespace stagewright::dapple
