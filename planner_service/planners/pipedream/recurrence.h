// PipeDream's dynamic programme over cuts, machines and replicas.
//
// Problem: cut a profiled model into stages, give each a number of machines, so that the slowest
// stage or transfer is as fast as can be and all machines are used.
//
//   paper          here                        meaning
//   A(j, m)        Recurrence::At(j, m)        least bottleneck of what is in state j on m machines
//   T(i -> j, m)   StageSeconds                a stage on m machines (objective.h)
//   2 C_i          TransferSeconds             activations and gradients over cut i
//   m'             replicas                    machines of the last stage
//
// Recurrence: A(j, m) = min(T(0 -> j, m), min over states i inside j and 1 <= m' < m of
// max(A(i, m - m'), 2 C_i, T(i -> j, m'))).
//
// Complexity: O(S^2 M^2) for S states and M machines at worst. T and C come from prefix sums in
// O(1). A pass over one chain of states gives a bottleneck that the full pass need not exceed:
// states whose work takes longer than that on m machines, or leaves too much for the others, are
// skipped, which leaves a few m for each j.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/pipedream/objective.h"
#include "planner_service/planners/pipedream/states.h"

namespace stagewright::pipedream {

// By state, cumulative: what a stage between two states costs is a difference.
struct StateCosts {
  // whole[m - 1]: m times the seconds of an m-th part of a mini-batch. One table stands for all m
  // (the published profile: work divides evenly).
  std::vector<std::vector<double>> whole;
  std::vector<double> least;       // No more than whole[m], difference by difference.
  std::vector<double> parameters;  // Bytes that replicas synchronise.
  std::vector<double> boundary;    // Bytes over the cut at the state; not cumulative.

  // On an outer level: compute time of [from, to) on one machine of this level, from * states + to.
  // `whole` and `least` are empty then.
  std::vector<double> inner;

  // The costs of the published profile, one table.
  static StateCosts Of(const LayerProfile& profile, const States& states);
};

// What keeps a stage in memory; bytes, cumulative by state. Empty: no limit.
struct MemoryLimits {
  double budget = 0;
  std::vector<double> resident;          // Parameters, gradients, optimizer state.
  std::vector<double> saved_per_sample;  // Kept until the backward pass.
  double workspace_per_sample = 0;
  double versions = 0;         // Copies of the parameters per mini-batch in flight.
  double least_versions = 0;   // At least so many copies of them, whatever is in flight.
  int64_t mini_batch = 1;      // Samples of what the recurrence calls a mini-batch.
  int64_t most_in_flight = 1;  // Mini-batches that there are to be in flight.
};

struct Limits {
  int32_t most_replicas = std::numeric_limits<int32_t>::max();
  int32_t most_stages = 0;    // 0: any.
  bool exact_stages = false;  // Exactly most_stages stages.
  MemoryLimits memory;
};

// A stage of one level.
struct Split {
  int32_t from = 0;
  int32_t to = 0;
  int32_t replicas = 1;
};

class Recurrence {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // Everything referenced outlives it. `links`: what the first stage's synchronisation may use.
  Recurrence(const States& states, const StateCosts& costs, const Rules& rules, const Level& level,
             double links, const Limits& limits, const SearchContext& context);

  // Fills the table for pipelines that start at state `start`. With a finite `bound`, only values
  // up to it that can be part of a pipeline of all machines and layers are right; others may be
  // larger than they should be. Stops early if the context expires.
  void Run(int32_t start, double bound = kNever);

  // The least bottleneck from Run's start to state j on exactly m machines; kNever if there is
  // none.
  double At(int32_t j, int32_t m) const;

  // A pipeline from Run's start to state j on exactly m machines whose bottleneck is at most
  // `bound`: of those, one with the fewest stages, and then the least transfers. Empty if there is
  // none. O(S^2 M^2), far less with a tight bound.
  std::vector<Split> Fewest(int32_t j, int32_t m, double bound);

  // An upper bound on At(last, m) from one chain of states, for Run.
  double ChainBound();

  int64_t visited() const { return visited_; }

 private:
  double Stage(int32_t from, int32_t to, int32_t replicas, bool first) const;
  // The least m for which the stage [from, to) on `replicas`, the last of m machines, fits.
  int32_t LeastMachines(int32_t from, int32_t to, int32_t replicas) const;
  // No fewer replicas keep the stage within limit_.
  int32_t LeastReplicas(int32_t from, int32_t to) const;
  void Prepare(const std::vector<bool>* only);
  void Windows(double bound);
  void Relax(int32_t from_table, int32_t to_table, const std::vector<bool>* only);
  void RelaxPair(int32_t k, int32_t j, const double* before, double* after, int32_t low,
                 int32_t high);
  std::vector<Split> Backtrack(int32_t j, int32_t m) const;
  double* Row(int32_t table, int32_t state) {
    return tables_[table].data() + static_cast<size_t>(state) * (machines_ + 1);
  }
  const double* Row(int32_t table, int32_t state) const {
    return tables_[table].data() + static_cast<size_t>(state) * (machines_ + 1);
  }

  const States& states_;
  const StateCosts& costs_;
  const Rules& rules_;
  const Limits& limits_;
  const SearchContext& context_;
  int32_t machines_;
  int32_t most_replicas_;
  int32_t start_ = 0;
  int32_t last_;
  int64_t visited_ = 0;
  int64_t choices_ = 0;    // Numbers of replicas tried (work::kStageChoice).
  double limit_ = kNever;  // No stage may take longer.
  double bandwidth_;
  double links_;
  std::vector<double> per_replica_;        // 1 / m.
  std::vector<double> sync_, first_sync_;  // Seconds per parameter byte on m replicas.
  std::vector<double> transfer_;           // Seconds per boundary byte on m replicas.
  std::vector<int32_t> low_, high_;        // m of each state that Run needs.
  // By number of stages if these are limited, else one.
  std::vector<std::vector<double>> tables_;
};

}  // namespace stagewright::pipedream
