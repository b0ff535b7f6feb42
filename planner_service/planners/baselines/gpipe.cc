// GPipe as its authors run it: balanced stages of one order of the operators, all forward
// passes before all backward passes.
//
// Problem: operators v_1 ... v_n in the topological order of the graph, f_v + b_v the time of one
// micro-batch. Cut them into K ranges, one per device, so that the slowest range is as fast as can
// be: min over cuts of max over ranges of the sum of f_v + b_v. A range that starts at i reaches as
// far as a limit L allows, so whether K ranges suffice for L is one pass over prefix sums; L is
// found by bisection, which ends when no double lies between the bounds.
//
// Complexity: O(n log(1 / epsilon)) per micro-batch size and number of stages, and at most one
// evaluation.
//
// Deviations from the paper:
//  1. Micro-batches. The paper leaves their number to the user; here every divisor of the
//     mini-batch up to kMostMicroBatches (and kMostCells over the stages) is tried and judged by
//     simulation.
//  2. Recomputation. The paper always recomputes; here stages recompute only where the memory asks
//     for it, or the options do.
//  3. Modelled balance. The balance is by modelled time on the kind of device that a stage runs on,
//     not by a measurement.
//  4. Fewer stages. The paper leaves the number of stages to the user; here one per device comes
//     first, then any smaller number up to kAllCounts and of larger ones those of the form 2^i or
//     3 * 2^i, unless their bubble and their slowest range alone take longer than the best so far.
//  5. Views of the cluster. Where devices, memories or links differ, several views of the cluster
//     are tried (search/placement_views.h).
//
// Reference: Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline
// Parallelism", NeurIPS 2019; balance by time as in torchgpipe, Kim et al. 2020.
#include "planner_service/planners/baselines/gpipe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cost/node_weights.h"
#include "planner_service/models/draft.h"
#include "planner_service/models/stage_oracle.h"
#include "planner_service/planners/baselines/fastest.h"
#include "planner_service/search/micro_batch_sizes.h"
#include "planner_service/search/placement_views.h"
#include "planner_service/search/why_not.h"

namespace stagewright {
namespace {

constexpr int64_t kMostMicroBatches = 1024;
constexpr int64_t kMostCells = 1 << 14;  // Micro-batches times stages: one evaluation's size.
constexpr int32_t kAllCounts = 8;        // Up to so many stages every number is tried.

// A stage's time relative to that on the slowest kind of device, by stage.
using Rates = std::vector<double>;

// The ends of the ranges [0, e_1), [e_1, e_2), ... when each reaches as far as `limit` allows;
// empty if there would have to be more than there are rates.
std::vector<int32_t> Reach(const ShareCosts& costs, int32_t operators, const Rates& rates,
                           double limit) {
  std::vector<int32_t> ends;
  for (int32_t begin = 0; begin < operators;) {
    if (ends.size() == rates.size()) return {};
    const double rate = rates[ends.size()];
    if (costs.Time(begin, begin + 1) * rate > limit) return {};
    int32_t low = begin + 1, high = operators;
    while (low < high) {
      const int32_t middle = low + (high - low + 1) / 2;
      if (costs.Time(begin, middle) * rate <= limit) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    ends.push_back(low);
    begin = low;
  }
  return ends;
}

// Ends of as many ranges as there are rates whose slowest is as fast as can be.
std::vector<int32_t> Balance(const ShareCosts& costs, int32_t operators, const Rates& rates) {
  const auto stages = static_cast<int32_t>(rates.size());
  double low = 0, high = costs.Time(0, operators);
  for (int32_t v = 0; v < operators; ++v) low = std::max(low, costs.Time(v, v + 1));
  low *= *std::min_element(rates.begin(), rates.end());
  std::vector<int32_t> best = Reach(costs, operators, rates, high);
  std::vector<int32_t> tight = Reach(costs, operators, rates, low);
  if (!tight.empty()) {
    best = std::move(tight);
    high = low;
  }
  while (high > std::nextafter(low, high)) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    std::vector<int32_t> ends = Reach(costs, operators, rates, middle);
    if (ends.empty()) {
      low = middle;
    } else {
      best = std::move(ends);
      high = middle;
    }
  }
  // Fewer ranges may do; cutting the longest ones further makes none slower.
  while (static_cast<int32_t>(best.size()) < stages) {
    size_t longest = 0;
    int32_t most = 0;
    for (size_t s = 0; s < best.size(); ++s) {
      const int32_t length = best[s] - (s == 0 ? 0 : best[s - 1]);
      if (length > most) {
        most = length;
        longest = s;
      }
    }
    best.insert(best.begin() + static_cast<std::ptrdiff_t>(longest), best[longest] - most / 2);
  }
  return best;
}

// What an iteration takes at least: the slowest range runs all micro-batches, the first of which
// comes through all others, and the last goes back through them.
double LeastTime(const ShareCosts& costs, const std::vector<int32_t>& ends, const Rates& rates,
                 int64_t micro_batches) {
  double all = 0;
  double slowest = 0;
  for (size_t s = 0; s < ends.size(); ++s) {
    const double own = costs.Time(s == 0 ? 0 : ends[s - 1], ends[s]) * rates[s];
    all += own;
    slowest = std::max(slowest, own);
  }
  return all + slowest * static_cast<double>(micro_batches - 1);
}

// The numbers of stages to try where there may be `most`: that one first.
std::vector<int32_t> StageCounts(int32_t most) {
  std::vector<int32_t> counts = {most};
  for (int32_t count = most - 1; count >= 1; --count) {
    const auto bits = static_cast<uint32_t>(count);
    const bool round =
        std::has_single_bit(bits) || (count % 3 == 0 && std::has_single_bit(bits / 3));
    if (count <= kAllCounts || round) counts.push_back(count);
  }
  return counts;
}

class GPipePlanner : public Planner {
 public:
  std::string name() const override { return "gpipe"; }
  std::string description() const override {
    return "a chain of stages balanced by time, all forward passes first";
  }

  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    Outcome outcome;
    outcome.reason = ImpossibleOptions(problem, options, /*loops=*/1);
    if (!outcome.reason.empty()) return outcome;
    Nanos best = std::numeric_limits<Nanos>::max();
    absl::Status rejection;
    RETURN_IF_ERROR(SearchOne(problem, nullptr, options, context, best, outcome, rejection));
    for (const PlacementView& view : PlacementViews(problem)) {
      if (context.Expired()) break;
      if (options.num_stages > view.cluster.size()) continue;
      RETURN_IF_ERROR(SearchOne(problem, &view, options, context, best, outcome, rejection));
    }
    if (outcome.candidates == 0 && options.micro_batch > 0) {
      PlanOptions single = options;
      single.allow_replicas = false;
      outcome.reason = WhyNoMicroBatch(problem, single);
      if (outcome.reason.empty())
        outcome.reason = absl::StrCat("a micro-batch of ", options.micro_batch, " makes more than ",
                                      kMostMicroBatches, " micro-batches");
      return outcome;
    }
    if (context.Expired()) {
      SayStopped(outcome, absl::StrCat(outcome.candidates, " candidates"));
    } else if (outcome.strategy) {
      outcome.termination = Termination::kFeasible;
      outcome.reason.clear();
    } else {
      Outcome none = NoneFound(name(), problem, options, {"balanced chains", "", rejection});
      outcome.termination = none.termination;
      outcome.reason = std::move(none.reason);
    }
    return outcome;
  }

 private:
  // Every number of stages and of micro-batches on the cluster, or on a view of it.
  static absl::Status SearchOne(const Problem& problem, const PlacementView* view,
                                const PlanOptions& options, SearchContext& context, Nanos& best,
                                Outcome& outcome, absl::Status& rejection) {
    Problem seen = problem;
    if (view != nullptr) seen.cluster = &view->cluster;
    int32_t most = std::min(seen.operators->size(), seen.cluster->size());
    if (options.max_stages > 0) most = std::min(most, options.max_stages);
    if (options.num_stages > 0) most = options.num_stages;
    const StageOracle oracle(seen, ModelOrder(seen));
    for (int32_t stages : StageCounts(most)) {
      if (context.Expired() || (stages < most && options.num_stages > 0)) break;
      RETURN_IF_ERROR(SearchCount(oracle, stages, stages < most, problem, view, options, context,
                                  best, outcome, rejection));
    }
    return absl::OkStatus();
  }

  // Every number of micro-batches for one number of stages. `prune`: only what may be the best.
  static absl::Status SearchCount(const StageOracle& oracle, int32_t stages, bool prune,
                                  const Problem& problem, const PlacementView* view,
                                  const PlanOptions& options, SearchContext& context, Nanos& best,
                                  Outcome& outcome, absl::Status& rejection) {
    std::vector<int64_t> sizes = MicroBatches(oracle.problem(), options);
    std::reverse(sizes.begin(), sizes.end());
    for (int64_t micro_batch : sizes) {
      const int64_t parts = problem.mini_batch / micro_batch;
      if (parts > kMostMicroBatches) break;
      // One evaluation must not outlast a deadline by much.
      if (options.micro_batch == 0 && parts > 1 && parts * stages > kMostCells) break;
      const Rates rates = RatesOf(oracle, stages, micro_batch);
      const std::vector<int32_t> ends = Balance(oracle.Share(micro_batch), oracle.size(), rates);
      if (prune &&
          LeastTime(oracle.Share(micro_batch), ends, rates, parts) >= static_cast<double>(best)) {
        continue;
      }
      RETURN_IF_ERROR(TryCuts(oracle, ends, problem, view, options, micro_batch, context, best,
                              outcome, rejection));
      if (context.Expired()) break;
    }
    return absl::OkStatus();
  }

  static Rates RatesOf(const StageOracle& oracle, int32_t stages, int64_t micro_batch) {
    const Problem& problem = oracle.problem();
    std::vector<double> total;  // By kind.
    for (const DeviceKind& kind : problem.cluster->kinds()) {
      total.push_back(1 + TotalTime(*problem.graph, *problem.costs, kind, micro_batch));
    }
    const double slowest = *std::max_element(total.begin(), total.end());
    Rates rates;
    for (int32_t s = 0; s < stages; ++s) {
      rates.push_back(total[problem.cluster->devices()[s].kind] / slowest);
    }
    return rates;
  }

  static Strategy Build(const StageOracle& oracle, const std::vector<int32_t>& ends,
                        int64_t micro_batch, bool recompute) {
    Draft draft;
    draft.kind = StrategyKind::kSequential;
    draft.micro_batch = micro_batch;
    int32_t begin = 0;
    for (size_t s = 0; s < ends.size(); ++s) {
      DraftStage stage;
      for (; begin < ends[s]; ++begin) stage.operators.push_back(oracle.order()[begin].value());
      std::sort(stage.operators.begin(), stage.operators.end());
      stage.devices = {static_cast<int32_t>(s)};
      stage.recompute = recompute;
      draft.stages.push_back(std::move(stage));
    }
    Strategy strategy = ToStrategy(oracle.problem(), draft);
    for (Stage& stage : strategy.stages) stage.schedule = {strategy.mini_batch, 1};
    return strategy;
  }

  // Judges the balanced pipeline of one micro-batch size, with recomputation only if it must be.
  static absl::Status TryCuts(const StageOracle& oracle, const std::vector<int32_t>& ends,
                              const Problem& problem, const PlacementView* view,
                              const PlanOptions& options, int64_t micro_batch,
                              SearchContext& context, Nanos& best, Outcome& outcome,
                              absl::Status& rejection) {
    for (const bool recompute : {false, true}) {
      if (context.Expired()) return absl::OkStatus();
      if (recompute ? options.recompute == RecomputePolicy::kNever
                    : options.recompute == RecomputePolicy::kAlways) {
        continue;
      }
      Strategy strategy = Build(oracle, ends, micro_batch, recompute);
      if (view != nullptr) strategy = OnDevicesOf(*view, std::move(strategy));
      ASSIGN_OR_RETURN(const bool fits,
                       Consider(problem, std::move(strategy), context, best, outcome, rejection));
      if (fits) return absl::OkStatus();
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Planner> MakeGPipePlanner() { return std::make_unique<GPipePlanner>(); }

}  // namespace stagewright
