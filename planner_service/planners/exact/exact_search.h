// The search of the exact planner; exact.cc states the problem.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "planner_service/models/draft.h"
#include "planner_service/models/operator_costs.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/exact/layouts.h"
#include "planner_service/planners/exact/partition_tree.h"
#include "planner_service/planners/exact/relaxed_pipeline.h"

namespace stagewright {

// Micro-batches in flight beyond what ComputeInFlight asks for that the search tries, the same for
// all stages; and all of them (a schedule that runs every forward pass first).
inline constexpr int64_t kExtraInFlight[] = {0, 1, 2};

// How much is searched at most, about half a minute's work. A partial partition counts as one step,
// a schedule of a whole one and a simulation as more.
inline constexpr int64_t kMostExactSteps = 200'000'000;
inline constexpr int64_t kStepsPerSchedule = 16;
inline constexpr int64_t kStepsPerSimulation = 1000;

class ExactSearch {
 public:
  // All outlive it. `bound` holds for every strategy: reaching it ends the search.
  ExactSearch(const Problem& problem, const PlanOptions& options, SearchContext& context,
              Nanos bound);

  // Without the bounds every strategy in scope is simulated: the reference of tests.
  void set_prune(bool prune) { prune_ = prune; }

  // Starts from a strategy that passes Evaluate, in scope or not; others are ignored.
  absl::Status Seed(const Strategy& strategy);

  // All strategies in scope. False if the context expired or the steps were used up first.
  absl::StatusOr<bool> Run();

  const std::optional<Strategy>& best() const { return best_; }
  double best_time() const { return best_time_; }  // ns; infinite without a strategy.
  int64_t nodes() const { return nodes_; }         // Partial partitions.
  bool used_up() const { return steps_ > kMostExactSteps; }
  int64_t evaluations() const { return evaluations_; }
  const absl::Status& rejection() const { return too_large_.ok() ? refused_ : too_large_; }

 private:
  // A layout with a micro-batch size.
  struct Job {
    size_t layout = 0;
    int64_t micro_batch = 1;
    double least = 0;
  };
  // What one assignment of operators to stages leaves open.
  struct Choice {
    int32_t k = 1;
    int64_t extra = 0;
    uint32_t recompute = 0;  // Stages, by number in the layout.
  };

  std::vector<Job> Jobs();
  bool Consider(const StageTimes& times, const std::vector<int32_t>& stage_of);
  void FillCase(const StageTimes& times, const std::vector<int32_t>& stage_of);
  void FillStage(const StageTimes& times, const std::vector<int32_t>& stage_of, int32_t s);
  void FindDraftEdges();
  void TryInFlight(const StageTimes& times, Choice choice);
  void Try(const StageTimes& times, const Choice& choice);
  std::vector<int64_t> InFlight(int64_t micro_batch, int32_t k) const;
  std::optional<uint32_t> MustRecompute(const StageTimes& times) const;
  Strategy ToStrategy(const StageTimes& times, const Choice& choice) const;
  absl::Status Judge(Strategy strategy);

  const Problem& problem_;
  const PlanOptions& options_;
  SearchContext& context_;
  const Nanos bound_;
  bool prune_ = true;
  OperatorCosts costs_;
  std::vector<DeviceLayout> layouts_;

  // What follows belongs to the assignment at hand.
  PipelineCase case_;
  Draft draft_;                         // Stages in topological order.
  std::vector<int32_t> layout_stage_;   // By stage of the draft: the layout's stage.
  std::vector<StageEdge> draft_edges_;  // Between the draft's stages; sorted.
  std::vector<Bytes> fixed_;            // By stage of the layout: bytes of parameters.
  // By stage of the layout: bytes that a micro-batch saves and receives.
  std::vector<Bytes> saved_, entering_;

  std::optional<Strategy> best_;
  double best_time_ = std::numeric_limits<double>::infinity();
  absl::Status error_;
  int64_t nodes_ = 0;
  int64_t steps_ = 0;
  int64_t evaluations_ = 0;
  // Why the last strategy was ruled out by memory, and by anything else.
  absl::Status too_large_, refused_;
};

}  // namespace stagewright
