// Every option with every planner: the plan keeps to it, or the request is refused by the names of
// planner and option. None is passed over in silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/conformance/planner_suite.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledGraph;
using testing::Work;

struct Case {
  const char* name;
  PlanOptions options;
  const char* refusable;  // The field that a planner may refuse; null if none may.
  std::function<bool(const Strategy&)> keeps;
};

bool AllStages(const Strategy& strategy, const std::function<bool(const Stage&)>& holds) {
  return std::all_of(strategy.stages.begin(), strategy.stages.end(), holds);
}

int32_t MostLoops(const Strategy& strategy) {
  std::map<DeviceId, int32_t> loops;
  int32_t most = 0;
  for (const Stage& stage : strategy.stages) {
    for (DeviceId device : stage.devices) most = std::max(most, ++loops[device]);
  }
  return most;
}

bool SplitsBackward(const Strategy& strategy) {
  for (const DeviceOrder& order : strategy.orders) {
    for (const ComputeStep& step : order.steps) {
      if (step.pass == Pass::kBackwardInput || step.pass == Pass::kBackwardWeight) return true;
    }
  }
  return false;
}

bool OneMicroBatch(const Strategy& strategy) {
  const int64_t first = strategy.stages.front().micro_batch;
  return AllStages(strategy, [=](const Stage& s) { return s.micro_batch == first; });
}

std::vector<Case> Cases() {
  return {
      {"none", {}, nullptr, [](const Strategy& s) { return !s.asynchronous && OneMicroBatch(s); }},
      {"micro-batch",
       {.micro_batch = 2},
       nullptr,
       [](const Strategy& s) {
         return AllStages(s, [](const Stage& stage) { return stage.micro_batch == 2; });
       }},
      {"stages",
       {.num_stages = 3},
       "options.num_stages",
       [](const Strategy& s) { return s.stages.size() == 3; }},
      {"most stages",
       {.max_stages = 2},
       nullptr,
       [](const Strategy& s) { return s.stages.size() <= 2; }},
      {"no replicas",
       {.allow_replicas = false},
       "options.allow_replicas",
       [](const Strategy& s) {
         return AllStages(s, [](const Stage& stage) { return stage.devices.size() == 1; });
       }},
      // Options that permit something.
      {"micro-batches per stage",
       {.per_stage_micro_batch = true},
       nullptr,
       [](const Strategy& s) { return !s.asynchronous; }},
      {"kFkB",
       {.max_k = 2},
       nullptr,
       [](const Strategy& s) {
         return AllStages(s, [](const Stage& stage) { return stage.schedule.k <= 2; });
       }},
      {"never recompute",
       {.recompute = RecomputePolicy::kNever},
       nullptr,
       [](const Strategy& s) {
         return AllStages(s, [](const Stage& stage) { return !stage.recompute; });
       }},
      {"always recompute",
       {.recompute = RecomputePolicy::kAlways},
       "options.recompute",
       [](const Strategy& s) {
         return AllStages(s, [](const Stage& stage) { return stage.recompute; });
       }},
      {"no loops", {.max_loops = 1}, nullptr, [](const Strategy& s) { return MostLoops(s) == 1; }},
      {"whole backward passes",
       {.split_backward = false},
       nullptr,
       [](const Strategy& s) { return !SplitsBackward(s); }},
      {"sequential",
       {.sequential = true},
       nullptr,
       [](const Strategy& s) {
         return s.kind == StrategyKind::kSequential || s.stages.size() == 1;
       }},
      {"asynchronous",
       {.asynchronous = true},
       "options.asynchronous",
       [](const Strategy& s) { return s.asynchronous && !s.vertical_sync; }},
      {"vertical sync",
       {.asynchronous = true, .vertical_sync = true},
       "options.asynchronous",
       [](const Strategy& s) { return s.asynchronous && s.vertical_sync; }},
      {"asynchronous, always recompute",
       {.recompute = RecomputePolicy::kAlways, .asynchronous = true},
       "options.",
       [](const Strategy& s) {
         return s.asynchronous && AllStages(s, [](const Stage& stage) { return stage.recompute; });
       }},
  };
}

// A source, two branches of two operators each, and a join.
Graph TwoBranches() {
  const Work work = {kMillisecond, 2 * kMillisecond, kKiB, kKiB, {}};
  std::vector<Work> nodes(6, work);
  nodes[1].after = nodes[3].after = {0};
  nodes[2].after = {1};
  nodes[4].after = {3};
  nodes[5].after = {2, 4};
  return ProfiledGraph(nodes);
}

class PlannerOptionsTest : public PlannerSuite {};

TEST_P(PlannerOptionsTest, AreKeptOrRefused) {
  const Graph graph = TwoBranches();
  const Cluster cluster = FlatCluster(3);
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    PlanRequest request = Request(graph, cluster, 4);
    request.options = c.options;
    SearchContext context;
    const auto response = Ask(request, context);
    // The default planner keeps to all of them.
    const bool must = std::string(GetParam().name) == kDefaultPlanner;
    const absl::Status able =
        CheckAbilities(c.options, GetParam().name, GetParam().make()->abilities());
    if (!able.ok()) {
      EXPECT_FALSE(must);
      ASSERT_NE(c.refusable, nullptr) << able;
      EXPECT_EQ(response.status(), able);
      EXPECT_EQ(able.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(able.message()), HasSubstr(c.refusable));
      EXPECT_THAT(std::string(able.message()), HasSubstr(GetParam().name));
      continue;
    }
    ASSERT_TRUE(response.ok()) << response.status();
    CheckResponse(request, *response);
    if (response->best) {
      EXPECT_TRUE(c.keeps(response->best->plan.strategy));
    } else {
      EXPECT_FALSE(must) << response->reason;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlannerOptionsTest, ::testing::ValuesIn(PlannersUnderTest()),
                         SuiteName);

}  // namespace
}  // namespace stagewright
