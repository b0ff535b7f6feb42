// The seam between the front door and the planners. Planners only search; the evaluator judges.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/graph/operator_split.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"
#include "planner_service/planner/search_context.h"

namespace stagewright {

// What is to be planned. Everything referenced outlives the search.
struct Problem {
  const Graph* graph = nullptr;
  const OperatorGraph* operators = nullptr;
  const Cluster* cluster = nullptr;
  const CostModel* costs = nullptr;
  int64_t mini_batch = 1;
  Optimizer optimizer = Optimizer::kAdam;
  BatchStatistics batch_statistics = BatchStatistics::kWhole;
  Bytes bucket_bytes = 0;  // Strategy::bucket_bytes.
  // Strategy::optimizer_sharding.
  OptimizerSharding optimizer_sharding = OptimizerSharding::kNone;
};

// A strategy of the problem's mini-batch, batch statistics, buckets and sharding, without stages.
Strategy EmptyStrategy(const Problem& problem, StrategyKind kind);

// Time of the whole model's passes over one sample, by kind of device of the cluster: how fast each
// is at what the model does, in the precision of the costs. O(nodes * kinds).
std::vector<Nanos> TimesOfKinds(const Problem& problem);

enum class RecomputePolicy { kAllowed, kNever, kAlways };

// The planner that reads its plan from PlanOptions::manual. No other option holds for it.
inline constexpr char kManualPlanner[] = "manual";

// The most that PlanOptions::effort may ask for: hours, where the least takes seconds.
inline constexpr int32_t kMostSearchEffort = 1'000;

// What the user asks of the search; 0 and "any" leave the choice to the planner. A planner that
// knows nothing of an option that only permits something (max_k, per_stage_micro_batch, effort,
// seed) ignores it. One that asks for something is kept, or the front door refuses the request by
// PlannerAbilities.
struct PlanOptions {
  int64_t micro_batch = 0;     // Force one micro-batch size.
  int32_t max_stages = 0;      // At most this many stages.
  int32_t num_stages = 0;      // Exactly this many stages.
  bool allow_replicas = true;  // Data-parallel stages.
  bool per_stage_micro_batch = false;
  int32_t max_k = 1;  // kFkB schedules up to this k.
  RecomputePolicy recompute = RecomputePolicy::kAllowed;
  int32_t max_loops = 0;       // Stages per device, at most; 1 forbids loops.
  bool split_backward = true;  // Schedules may split the backward pass in two.
  bool sequential = false;     // Only sequential strategies.
  bool asynchronous = false;   // Only asynchronous strategies: 1F1B with weight stashing.
  bool vertical_sync = false;  // With asynchronous: Strategy::vertical_sync.
  uint64_t seed = 1;           // For planners that draw random numbers.
  int32_t effort = 1;          // So many times the budgets of what "auto" does.
  BatchStatistics batch_statistics = BatchStatistics::kWhole;  // Problem::batch_statistics.
  Bytes bucket_bytes = 0;                                      // Problem::bucket_bytes.
  // Problem::optimizer_sharding; nothing: the front door tries each.
  std::optional<OptimizerSharding> optimizer_sharding = OptimizerSharding::kNone;
  // Operators that are cut in parallel parts before anything is planned (common/rewrite). None:
  // planners that try it by themselves may, with `try_splits`.
  std::vector<OperatorSplit> splits;
  bool try_splits = true;
  std::string manual;  // The plan that the planner "manual" reads (docs/planners/manual.md).
};

// Which options that ask for something a planner can keep to at all, whatever the problem.
struct PlannerAbilities {
  bool asynchronous = false;     // PlanOptions::asynchronous.
  bool recompute_always = true;  // RecomputePolicy::kAlways.
  bool several_stages = true;    // num_stages of more than one.
  bool without_replicas = true;  // allow_replicas == false.
  bool learns_by_trial = false;  // SearchContext::measure.
  // Gives stages with nodes that need the whole mini-batch a micro-batch of their own. Others are
  // asked for plans without micro-batches and replicas wherever there is such a node.
  bool whole_stages = false;
  // Is asked again with operators cut that bind (PlanOptions::try_splits).
  bool tries_splits = false;
};

// INVALID_ARGUMENT names the first option that the planner cannot keep to, and the planner. The
// planner "manual" may have any.
absl::Status CheckAbilities(const PlanOptions& options, const std::string& planner,
                            const PlannerAbilities& abilities);

enum class Termination { kOptimal, kFeasible, kInfeasible, kLimit };
// "optimal", "feasible", "infeasible" or "limit".
const char* TerminationName(Termination termination);

// Infeasible and limit reached are results, not errors.
struct Outcome {
  Termination termination = Termination::kInfeasible;
  std::optional<Strategy> strategy;
  // No strategy of the problem is faster, where the planner asked (SearchContext::lower_bound).
  std::optional<Nanos> lower_bound;
  // Iteration time of `strategy`, where the planner had it evaluated.
  std::optional<Nanos> iteration_time;
  // The best sequential strategy, from planners that look for one beside their answer.
  std::optional<Strategy> sequential;
  std::string reason;      // For infeasible and limit: what binds, by how much, what would help.
  int64_t states = 0;      // Search states visited.
  int64_t candidates = 0;  // Strategies judged by simulation.
  std::vector<std::string> warnings;  // What else the user should know, one sentence each.
};

// Makes the outcome that of a search which the deadline or a cancellation ended, with what it did
// until then ("12 candidates"; may be empty). What it found stays.
void SayStopped(Outcome& outcome, const std::string& after = "");

class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string name() const = 0;         // "graphpipe"
  virtual std::string description() const = 0;  // One line for people.
  virtual PlannerAbilities abilities() const { return {}; }
  // Deterministic for equal arguments unless the deadline cuts in.
  virtual absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                        SearchContext& context) const = 0;
};

}  // namespace stagewright
