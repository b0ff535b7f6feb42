// Pairs of problems of which one is easier than the other, or the same under other names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/units.h"
#include "planner_service/front_door/front_door.h"
#include "tests/support/small_problems.h"

namespace stagewright::testing {

// A problem that owns what it refers to, with options.
struct OwnedProblem {
  Graph graph;
  Cluster cluster;
  std::unique_ptr<CostModel> costs;
  PlanOptions options;
  int64_t mini_batch = 1;
  Optimizer optimizer = Optimizer::kSgd;

  // Valid while this stays where it is and `costs` are set.
  PlanRequest request() const {
    PlanRequest request;
    request.graph = &graph;
    request.cluster = &cluster;
    request.costs = costs.get();
    request.mini_batch = mini_batch;
    request.optimizer = optimizer;
    request.options = options;
    return request;
  }
};

// The best answer to `easier` takes at most `times` as long as that to `harder`, and `more`.
struct ProblemPair {
  OwnedProblem harder, easier;
  double times = 1;
  Nanos more = 0;
};

struct Relation {
  const char* name;  // What the easier problem has; of letters that a table can hold.
  void (*apply)(ProblemPair& pair);  // Both problems are the same before.
  bool same = false;                 // Neither is easier: the answers take equally long.
};

// All of them.
std::span<const Relation> Relations();

// Problem number `index`, which may have any number >= 0, twice, in the relation. The costs are
// set.
std::unique_ptr<ProblemPair> MakePair(const Relation& relation, int32_t index);

// "12: fan, 7 operators, ...": the problem of that number.
std::string NameOfProblem(int32_t index);

}  // namespace stagewright::testing
