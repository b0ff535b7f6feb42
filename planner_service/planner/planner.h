// The seam between the front door and the planners. Planners only search; the evaluator judges.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"

namespace stagewright {

// What is to be planned. Everything referenced outlives the search.
struct Problem {
  const Graph* graph = nullptr;
  const OperatorGraph* operators = nullptr;
  const Cluster* cluster = nullptr;
  const CostModel* costs = nullptr;
  int64_t mini_batch = 1;
  Optimizer optimizer = Optimizer::kAdam;
};

enum class RecomputePolicy { kAllowed, kNever, kAlways };

// The planner that reads its plan from PlanOptions::manual. No other option holds for it.
inline constexpr char kManualPlanner[] = "manual";

// What the user asks of the search; 0 and "any" leave the choice to the planner. A planner that
// knows nothing of an option that only permits something ignores it.
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
  bool asynchronous = false;  // Asynchronous 1F1B with weight stashing, from planners that have it.
  uint64_t seed = 1;          // Of planners that draw random numbers.
  std::string manual;         // The plan that the planner "manual" reads (docs/planners/manual.md).
};

// Deadline, cancellation and progress of one search. Planners poll Expired() at least every 10 ms.
class SearchContext {
 public:
  using Clock = std::chrono::steady_clock;
  explicit SearchContext(Clock::time_point deadline = Clock::time_point::max())
      : deadline_(deadline) {}
  // A part of another search: it expires with it, or before. `outer` outlives the context.
  SearchContext(const SearchContext& outer, Clock::time_point deadline)
      : outer_(&outer), deadline_(deadline) {}
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool Expired() const {
    return cancelled_.load(std::memory_order_relaxed) || Clock::now() >= deadline_ ||
           (outer_ != nullptr && outer_->Expired());
  }

  // Called with each strategy better than all before it, from the searching thread.
  std::function<void(const Strategy&)> on_improvement;

 private:
  const SearchContext* outer_ = nullptr;
  std::atomic<bool> cancelled_{false};
  Clock::time_point deadline_;
};

enum class Termination { kOptimal, kFeasible, kInfeasible, kLimit };
const char* TerminationName(
    Termination termination);  // "optimal", "feasible", "infeasible", "limit"

// Infeasible and limit reached are results, not errors.
struct Outcome {
  Termination termination = Termination::kInfeasible;
  std::optional<Strategy> strategy;
  // The best sequential strategy, from planners that look for one beside their answer.
  std::optional<Strategy> sequential;
  std::string reason;      // For infeasible and limit: what binds, by how much, what would help.
  int64_t states = 0;      // Search states visited.
  int64_t candidates = 0;  // Strategies judged by simulation.
};

class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string name() const = 0;         // "graphpipe"
  virtual std::string description() const = 0;  // One line for people.
  // Deterministic for equal arguments unless the deadline cuts in.
  virtual absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                        SearchContext& context) const = 0;
};

}  // namespace stagewright
