// What the conformance tests of planners share: requests to the planner under test, and a judgement
// of each answer that is independent of the planner's own.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <ostream>
#include <string>
#include <vector>

#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/planner_table.h"
#include "planner_service/planners/drl_pp/on_demand.h"

namespace stagewright {

inline void PrintTo(const RegisteredPlanner& planner, std::ostream* out) { *out << planner.name; }

// How many times as long a build without optimisation, or with a sanitizer, takes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kSlowBuild = 12;
#elif !defined(NDEBUG)
inline constexpr int kSlowBuild = 3;
#else
inline constexpr int kSlowBuild = 1;
#endif

class PlannerSuite : public ::testing::TestWithParam<RegisteredPlanner> {
 protected:
  PlanRequest Request(const Graph& graph, const Cluster& cluster, int64_t mini_batch) const {
    PlanRequest request;
    request.graph = &graph;
    request.cluster = &cluster;
    request.planner = GetParam().name;
    request.mini_batch = mini_batch;
    return request;
  }

  // Asks the planner as this suite makes it: one that learns has a small budget.
  static absl::StatusOr<PlanResponse> Ask(const PlanRequest& request, SearchContext& context,
                                          const ImprovementCallback& on_improvement = {}) {
    return SolvePlanWith(*GetParam().make(), request, context, on_improvement);
  }

  // The front door turns whatever the evaluator rejects into an error; what it accepts is judged
  // again here.
  static PlanResponse Solve(const PlanRequest& request, SearchContext& context) {
    auto response = Ask(request, context);
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return {};
    CheckResponse(request, *response);
    return *std::move(response);
  }
  static PlanResponse Solve(const PlanRequest& request) {
    SearchContext context;
    return Solve(request, context);
  }

  static void CheckResponse(const PlanRequest& request, const PlanResponse& response) {
    if (!response.best) {
      EXPECT_TRUE(response.termination == Termination::kInfeasible ||
                  response.termination == Termination::kLimit);
      EXPECT_FALSE(response.reason.empty());
      return;
    }
    EXPECT_NE(response.termination, Termination::kInfeasible);
    const Evaluation& evaluation = response.best->evaluation;
    EXPECT_GE(evaluation.iteration_time, response.lower_bound);
    const auto again = JudgeStrategy(request, response.best->plan.strategy, request.planner);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->evaluation.iteration_time, evaluation.iteration_time);
    EXPECT_EQ(again->plan.fingerprint, response.best->plan.fingerprint);
    for (const DeviceUse& use : again->evaluation.devices) {
      EXPECT_LE(use.peak_memory, request.cluster->device(use.device).memory);
    }
  }

  // Some planners enumerate, and answer `limit` on graphs that are too large for that.
  static bool MayRefuseLargeGraphs() {
    const std::string name = GetParam().name;
    return name == "exact" || name == "piper";
  }

  // Planners that sample or search one kind of strategy cannot tell what does not fit from what
  // they have not found.
  static bool MayMissWhatFits() {
    const std::string name = GetParam().name;
    return name == "drl_pp" || name == "pipedream" || name == "piper" || name == "dapple" ||
           name == "gpipe" || name == "exact";
  }

  // A plan is expected: there is memory enough for any.
  PlanResponse MustPlan(const Graph& graph, const Cluster& cluster, int64_t mini_batch) const {
    PlanResponse response = Solve(Request(graph, cluster, mini_batch));
    EXPECT_TRUE(response.best) << response.reason;
    return response;
  }
};

// The planners that search and, where its module is built, DRL-PP with a budget for tests.
inline std::vector<RegisteredPlanner> PlannersUnderTest() {
  std::vector<RegisteredPlanner> planners(RegisteredPlanners().begin(), RegisteredPlanners().end());
#ifdef STAGEWRIGHT_HAS_DRL_PP
  planners.push_back({"drl_pp", [] { return MakeDrlPpPlannerOnDemand({.steps = 2}); }});
#endif
  return planners;
}

inline std::string SuiteName(const ::testing::TestParamInfo<RegisteredPlanner>& entry) {
  std::string name = entry.param.name;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

}  // namespace stagewright
