// Small changes of a draft, drawn at random: the neighbourhood of the local search.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "planner_service/models/draft.h"
#include "planner_service/models/list_schedule/list_schedule.h"
#include "planner_service/models/operator_costs.h"
#include "planner_service/search/branches/alike_branches.h"

namespace stagewright {

// Uniform and the same on every platform, unlike the standard distributions.
class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : engine_(seed) {}
  // In [0, n); n > 0.
  int32_t Below(size_t n) { return static_cast<int32_t>(engine_() % n); }
  bool OneIn(size_t n) { return Below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

class Moves {
 public:
  // `options` say what a draft may be. Arguments outlive the object. O(operators).
  Moves(const OperatorCosts& costs, const PlanOptions& options);

  // Whether the draft keeps to the options and to what a strategy may be, apart from cycles and
  // memory. O(devices of the cluster and of all stages).
  bool Allowed(const Draft& draft) const;

  // Changes the draft into a neighbour: moves operators between neighbouring stages, gives a stage
  // or an operator to another device, splits or merges stages, changes replicas, the micro-batch
  // size or recomputation, or exchanges two devices. `last` is the schedule of the draft as it is:
  // busy devices give, idle ones take more often. False, with the draft in any state, if the draw
  // makes no valid draft. Stages are sorted (SortStages). O(operators and their edges).
  bool Change(const ListResult& last, RandomSource& random, Draft& draft) const;

  // As Change; or a stage of several devices, or operators at an end of it, keeps only some of
  // these, which Change comes to by several neighbours that may all be slower.
  bool ChangeWidely(const ListResult& last, RandomSource& random, Draft& draft) const;

  // Whether the model has equal branches, between a fork and its join.
  bool HasAlike() const { return !alike_.empty(); }
  // As Change; or that and the same in all branches that equal the changed one (Mirror), or, where
  // it matters which devices exchange samples, two replicas of a stage exchanged.
  // REQUIRES: the draft's kind is kGraph.
  bool ChangeAlike(const ListResult& last, RandomSource& random, Draft& draft) const;

 private:
  bool Narrow(const ListResult& last, RandomSource& random, Draft& draft) const;
  bool ExchangeReplicas(RandomSource& random, Draft& draft) const;
  bool Shift(RandomSource& random, Draft& draft) const;
  bool Reassign(const ListResult& last, RandomSource& random, Draft& draft) const;
  bool Exchange(RandomSource& random, Draft& draft) const;
  bool Extract(const ListResult& last, RandomSource& random, Draft& draft) const;
  bool Split(const ListResult& last, RandomSource& random, Draft& draft) const;
  bool Merge(RandomSource& random, Draft& draft) const;
  bool Replicate(const ListResult& last, RandomSource& random, Draft& draft) const;
  bool Permute(RandomSource& random, Draft& draft) const;
  bool Recompute(RandomSource& random, Draft& draft) const;
  bool ChangeMicroBatch(RandomSource& random, Draft& draft) const;
  int32_t BusyStage(const ListResult& last, RandomSource& random, const Draft& draft) const;
  int32_t IdleDevice(const ListResult& last, RandomSource& random) const;
  int32_t StageOf(const Draft& draft, int32_t op) const;
  std::vector<int32_t> ByRank(std::vector<int32_t> operators) const;

  const OperatorCosts& costs_;
  const PlanOptions& options_;
  std::vector<Dag::Edge> edges_;  // Edges between the operators.
  // Places of the operators in an order that keeps branches together.
  std::vector<int32_t> rank_;
  std::vector<int64_t> micro_batches_;  // Sizes to choose from.
  std::vector<bool> whole_;             // Operators that need the whole mini-batch at once.
  std::vector<AlikeBranches> alike_;
  bool uniform_ = false;  // All devices and routes are alike.
};

}  // namespace stagewright
