// GPipe as its authors run it: balanced stages of the model's own order of operators, all forward
// passes before all backward passes.
//
// Problem: operators v_1 ... v_n in the topological order of the graph, f_v + b_v the time of one
// micro-batch. Cut them into K ranges, one per device, so that the slowest range is as fast as can
// be: min over cuts of max over ranges of the sum of f_v + b_v. A range that starts at i reaches as
// far as a limit L allows, so whether K ranges suffice for L is one pass over prefix sums; L is
// found by bisection, which ends when no double lies between the bounds.
//
// Complexity: O(n log(1 / epsilon)) per micro-batch size, plus one evaluation each.
//
// Deviations from the paper:
//   1. The paper leaves the number of micro-batches to the user; here every divisor of the
//      mini-batch up to kMostMicroBatches (and kMostCells over the stages) is tried and judged by
//      simulation.
//   2. The paper always recomputes; here stages recompute only where the memory asks for it, or the
//      options do.
//   3. The balance is by modelled time on the slowest kind of device, not by a measurement.
//
// Reference: Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline
// Parallelism", NeurIPS 2019; balance by time as in torchgpipe, Kim et al. 2020.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "planner_service/planners/baselines/baselines.h"
#include "planner_service/planners/baselines/one_stage.h"
#include "planner_service/search/draft.h"
#include "planner_service/search/stage_oracle.h"

namespace stagewright {
namespace {

constexpr int64_t kMostMicroBatches = 1024;
constexpr int64_t kMostCells = 1 << 14;  // Micro-batches times stages: one evaluation's size.

// The ends of the ranges [0, e_1), [e_1, e_2), ... when each reaches as far as `limit` allows;
// empty if more than `stages` would be needed.
std::vector<int32_t> Reach(const ShareCosts& costs, int32_t operators, int32_t stages,
                           double limit) {
  std::vector<int32_t> ends;
  for (int32_t begin = 0; begin < operators;) {
    if (static_cast<int32_t>(ends.size()) == stages) return {};
    int32_t low = begin + 1, high = operators;  // The first operator always fits.
    while (low < high) {
      const int32_t middle = low + (high - low + 1) / 2;
      if (costs.Time(begin, middle) <= limit) {
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

// Ends of exactly `stages` ranges whose slowest is as fast as can be.
std::vector<int32_t> Balance(const ShareCosts& costs, int32_t operators, int32_t stages) {
  double low = 0, high = costs.Time(0, operators);
  for (int32_t v = 0; v < operators; ++v) low = std::max(low, costs.Time(v, v + 1));
  std::vector<int32_t> best = Reach(costs, operators, stages, high);
  std::vector<int32_t> tight = Reach(costs, operators, stages, low);
  if (!tight.empty()) {
    best = std::move(tight);
    high = low;
  }
  while (high > std::nextafter(low, high)) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    std::vector<int32_t> ends = Reach(costs, operators, stages, middle);
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

class GPipePlanner : public Planner {
 public:
  std::string name() const override { return "gpipe"; }
  std::string description() const override {
    return "a chain of stages balanced by time, all forward passes first";
  }

  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    Outcome outcome;
    const int32_t operators = problem.operators->size();
    const int32_t devices = problem.cluster->size();
    int32_t stages = std::min(operators, devices);
    if (options.max_stages > 0) stages = std::min(stages, options.max_stages);
    if (options.num_stages > 0) stages = options.num_stages;
    if (stages > devices) {
      outcome.reason = absl::StrCat("planner 'gpipe' needs a device for each of ", stages,
                                    " stages, and there are ", devices);
      return outcome;
    }
    std::vector<OperatorId> order;
    for (int32_t v : problem.operators->dag().order()) order.push_back(OperatorId(v));
    const StageOracle oracle(problem, std::move(order));
    Nanos best = std::numeric_limits<Nanos>::max();
    for (int64_t parts = 1; parts <= std::min(problem.mini_batch, kMostMicroBatches); ++parts) {
      if (problem.mini_batch % parts != 0) continue;
      const int64_t micro_batch = problem.mini_batch / parts;
      if (options.micro_batch > 0 && micro_batch != options.micro_batch) continue;
      // One evaluation must not outlast a deadline by much.
      if (options.micro_batch == 0 && parts > 1 && parts * stages > kMostCells) break;
      RETURN_IF_ERROR(TryMicroBatch(oracle, options, stages, micro_batch, context, best, outcome));
      if (context.Expired()) break;
    }
    if (outcome.candidates == 0 && options.micro_batch > 0) {
      outcome.reason = absl::StrCat("a micro-batch of ", options.micro_batch, " makes more than ",
                                    kMostMicroBatches, " micro-batches");
      return outcome;
    }
    outcome.termination = outcome.strategy ? Termination::kFeasible : Termination::kInfeasible;
    if (context.Expired()) {
      outcome.termination = Termination::kLimit;
      outcome.reason = absl::StrCat("stopped after ", outcome.candidates, " candidates");
    } else if (outcome.strategy) {
      outcome.reason.clear();
    }
    return outcome;
  }

 private:
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
  static absl::Status TryMicroBatch(const StageOracle& oracle, const PlanOptions& options,
                                    int32_t stages, int64_t micro_batch, SearchContext& context,
                                    Nanos& best, Outcome& outcome) {
    const Problem& problem = oracle.problem();
    const std::vector<int32_t> ends = Balance(oracle.Share(micro_batch), oracle.size(), stages);
    for (const bool recompute : {false, true}) {
      if (context.Expired()) return absl::OkStatus();
      if (recompute ? options.recompute == RecomputePolicy::kNever
                    : options.recompute == RecomputePolicy::kAlways) {
        continue;
      }
      ASSIGN_OR_RETURN(const bool fits, Offer(problem, Build(oracle, ends, micro_batch, recompute),
                                              context, best, outcome));
      if (fits) return absl::OkStatus();
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Planner> MakeGPipePlanner() { return std::make_unique<GPipePlanner>(); }

}  // namespace stagewright
