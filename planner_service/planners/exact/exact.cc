// The exact planner.
//
// Problem: of all strategies in scope, one with the least iteration time by the evaluator within
// the devices' memory.
//
// Scope, up to symmetry of the cluster (layouts.h):
//   - every partition of at most kMostExactOperators operators into convex stages whose graph has
//     no cycle, as many stages as there are devices at most;
//   - disjoint sets of devices for them, of any size: replicas, mixed kinds, idle devices;
//   - one micro-batch size for all stages, of MicroBatchSizes(), rounded down;
//   - kFkB schedules with k up to max_k and the samples in flight of AssignInFlight plus 0, 1, 2 or
//     all micro-batches at every stage;
//   - recomputation on any set of stages where the evaluator refuses a smaller set for its memory.
// Several stages on a device, split backward passes and explicit orders are out of scope.
//
// | symbol | here                                                                        |
// |--------|-----------------------------------------------------------------------------|
// | n, K   | operators, devices                                                          |
// | L      | layouts: sequences of sets of devices, up to symmetry                       |
// | M      | micro-batches                                                               |
// | T*     | ExactSearch::best_time(), the best simulated time so far                    |
//
// Method. Branch and bound: for every layout and micro-batch size, the tree of partitions
// (partition_tree.h: recurrence of its bound); a partition that survives gets the longest path
// through its passes and messages for every schedule (relaxed_pipeline.h); what is still below T*
// is evaluated. Layouts come in order of their work over devices, and the search starts from what
// another planner finds (ExactStarts). It ends early when T* meets the proven bound on all
// strategies.
//
// Complexity: O(L n^K) nodes of at most O(n + K^2) without the bounds; in practice a few million.
//
// There is no paper: branch and bound with lower bounds by work and by path is textbook material.
#include "planner_service/planners/exact/exact.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/evaluator/lower_bound.h"
#include "planner_service/planners/exact/exact_search.h"
#include "planner_service/search/why_not.h"

namespace stagewright {
namespace {

// Beyond this, not even a plan to start from is looked for.
constexpr int32_t kMostSeededOperators = 500;

// Empty if the problem is small enough.
std::string TooLarge(const Problem& problem) {
  if (problem.operators->size() <= kMostExactOperators &&
      problem.cluster->size() <= kMostExactDevices) {
    return "";
  }
  return absl::StrCat("exhaustive search is limited to ", kMostExactOperators, " operators and ",
                      kMostExactDevices, " devices; this problem has ", problem.operators->size(),
                      " operators and ", problem.cluster->size(), " devices");
}

class ExactPlanner : public Planner {
 public:
  explicit ExactPlanner(ExactStarts starts) : starts_(std::move(starts)) {}
  std::string name() const override { return "exact"; }
  std::string description() const override {
    return absl::StrCat("the optimum of problems with at most ", kMostExactOperators,
                        " operators and ", kMostExactDevices,
                        " devices, by exhaustive search with bounds");
  }

  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    Outcome outcome;
    outcome.reason = ImpossibleOptions(problem, options, /*loops=*/1);
    if (!outcome.reason.empty()) return outcome;
    if (problem.operators->size() > kMostSeededOperators) {
      outcome.termination = Termination::kLimit;
      outcome.reason = TooLarge(problem);
      return outcome;
    }
    const Planner& start = options.sequential ? *starts_.sequential : *starts_.graph;
    ASSIGN_OR_RETURN(outcome, start.Solve(problem, options, context));
    const std::string too_large = TooLarge(problem);
    if (!too_large.empty()) {
      outcome.termination = Termination::kLimit;
      if (!outcome.strategy) RETURN_IF_ERROR(TryOneDevice(problem, options, context, outcome));
      outcome.reason =
          absl::StrCat(too_large, outcome.strategy ? "; this is the plan it would start from" : "");
      return outcome;
    }
    return Search(problem, options, context, std::move(outcome));
  }

 private:
  // The fastest device that the model fits on, if the options allow one stage.
  absl::Status TryOneDevice(const Problem& problem, const PlanOptions& options,
                            SearchContext& context, Outcome& outcome) const {
    const Planner& single = *starts_.single;
    if (!CheckAbilities(options, single.name(), single.abilities()).ok()) return absl::OkStatus();
    ASSIGN_OR_RETURN(Outcome one, single.Solve(problem, options, context));
    outcome.candidates += one.candidates;
    outcome.strategy = std::move(one.strategy);
    return absl::OkStatus();
  }

  static absl::StatusOr<Outcome> Search(const Problem& problem, const PlanOptions& options,
                                        SearchContext& context, Outcome seed) {
    const Nanos bound = LowerBound(
        *problem.graph, *problem.operators, *problem.cluster, *problem.costs, problem.mini_batch,
        {problem.optimizer, /*asynchronous=*/false, problem.optimizer_sharding});
    ExactSearch search(problem, options, context, bound);
    const bool seeded = seed.strategy && options.recompute != RecomputePolicy::kAlways;
    if (seeded) RETURN_IF_ERROR(search.Seed(*seed.strategy));
    ASSIGN_OR_RETURN(const bool complete, search.Run());
    Outcome outcome;
    outcome.states = search.nodes();
    outcome.candidates = seed.candidates + search.evaluations();
    outcome.strategy = search.best();
    if (!complete) {
      const std::string done = absl::StrCat(search.nodes(), " partial partitions and ",
                                            search.evaluations(), " simulations");
      SayStopped(outcome, done);
      if (search.used_up()) {
        outcome.reason = absl::StrCat("the search was stopped by its limit of ", kMostExactSteps,
                                      " steps after ", done);
      }
    } else if (outcome.strategy) {
      outcome.termination = Termination::kOptimal;
    } else {
      Outcome none = NoneFound(
          "exact", problem, options,
          {"strategies of one stage per device and one micro-batch size", "", search.rejection()});
      outcome.termination = none.termination;
      outcome.reason = std::move(none.reason);
    }
    return outcome;
  }

  const ExactStarts starts_;
};

}  // namespace

std::unique_ptr<Planner> MakeExactPlanner(ExactStarts starts) {
  return std::make_unique<ExactPlanner>(std::move(starts));
}

}  // namespace stagewright
