#include "planner_service/planners/baselines/manual_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "planner_service/front_door/front_door.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledGraph;

// Two branches n1 -> n2 and n3 -> n4 between n0 and n5, in modules "a", "a.b" and "c".
Graph Branches() {
  Graph graph = ProfiledGraph({{1000, 2000, 8, 0, {}},
                               {1000, 2000, 8, 8, {0}},
                               {1000, 2000, 8, 8, {1}},
                               {1000, 2000, 8, 8, {0}},
                               {1000, 2000, 8, 8, {3}},
                               {1000, 2000, 8, 0, {2, 4}}});
  GraphData data = graph.data();
  data.nodes[1].module = "a";
  data.nodes[2].module = "a.b";
  data.nodes[3].module = "c";
  data.nodes[4].module = "c";
  data.nodes[5].module = "ab";
  return Graph::Create(std::move(data)).value();
}

class ManualPlanTest : public ::testing::Test {
 protected:
  absl::StatusOr<Strategy> Parse(const std::string& text) {
    return ParseManualPlan(problem_, text);
  }
  std::string Error(const std::string& text) {
    const auto strategy = Parse(text);
    EXPECT_EQ(strategy.status().code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(strategy.status().message());
  }
  PlanRequest Request(const std::string& text) const {
    PlanRequest request;
    request.graph = &graph_;
    request.cluster = &cluster_;
    request.planner = "manual";
    request.mini_batch = 8;
    request.options.manual = text;
    return request;
  }

  const Graph graph_ = Branches();
  const Cluster cluster_ = FlatCluster(4);
  const OperatorGraph operators_ = OneOperatorPerNode(graph_).value();
  const std::unique_ptr<CostModel> costs_ = MakeAnalyticCostModel(graph_);
  const Problem problem_ = {&graph_, &operators_, &cluster_, costs_.get(), 8, Optimizer::kAdam};
};

TEST_F(ManualPlanTest, StagesByNamesModulesRangesAndTheRest) {
  const auto strategy = Parse(R"({
    "micro_batch": 2,
    "stages": [
      {"nodes": ["n0"], "devices": [0]},
      {"nodes": ["module:a"], "devices": [1, "node0/device2"], "k": 2, "recompute": true},
      {"nodes": ["n3..n4"], "devices": [3], "in_flight": 6},
      {"nodes": ["*"], "devices": [0], "micro_batch": 4}]})");
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  ASSERT_EQ(strategy->stages.size(), 4u);
  EXPECT_THAT(strategy->stages[1].nodes, ElementsAre(NodeId(1), NodeId(2)));
  EXPECT_THAT(strategy->stages[1].devices, ElementsAre(DeviceId(1), DeviceId(2)));
  EXPECT_EQ(strategy->stages[1].schedule.k, 2);
  EXPECT_TRUE(strategy->stages[1].recompute);
  EXPECT_THAT(strategy->stages[2].nodes, ElementsAre(NodeId(3), NodeId(4)));
  EXPECT_EQ(strategy->stages[2].schedule.in_flight, 6);
  EXPECT_THAT(strategy->stages[3].nodes, ElementsAre(NodeId(5)));
  EXPECT_EQ(strategy->stages[3].micro_batch, 4);
  EXPECT_EQ(strategy->mini_batch, 8);
  EXPECT_EQ(strategy->edges.size(), 4u);
  // What is not given is what keeps successors busy.
  EXPECT_GE(strategy->stages[0].schedule.in_flight, strategy->stages[1].schedule.in_flight);
}

TEST_F(ManualPlanTest, ChainsAndOrders) {
  const auto chain = Parse(R"({"kind": "sequential", "micro_batch": 4, "stages": [
      {"nodes": ["n0", "module:a"], "devices": [0]},
      {"nodes": ["*"], "devices": [1]}],
      "orders": ["device 0: F0.0 F0.1 B0.0 B0.1", "device 1: F1.0 I1.0 F1.1 W1.0 I1.1 W1.1"]})");
  ASSERT_TRUE(chain.ok()) << chain.status();
  EXPECT_EQ(chain->kind, StrategyKind::kSequential);
  ASSERT_EQ(chain->orders.size(), 2u);
  EXPECT_EQ(chain->orders[1].steps.size(), 6u);
  EXPECT_EQ(chain->stages[0].schedule.in_flight, 8);
}

TEST_F(ManualPlanTest, OrdersMayNameDevices) {
  const std::string a = cluster_.device(DeviceId(3)).name, b = cluster_.device(DeviceId(1)).name;
  const auto plan =
      Parse(R"({"micro_batch": 4, "stages": [{"nodes": ["n0", "module:a"], "devices": [")" + a +
            R"("]}, {"nodes": ["*"], "devices": [")" + b + R"("]}], "orders": ["device )" + a +
            R"(: F0.0 F0.1 B0.0 B0.1", "device )" + b + R"(: F1.0 B1.0 F1.1 B1.1"]})");
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->orders.size(), 2u);
  EXPECT_EQ(plan->orders[0].device, DeviceId(3));
  EXPECT_EQ(plan->orders[1].device, DeviceId(1));
}

TEST_F(ManualPlanTest, AsynchronousPlansMaySyncVersions) {
  const auto strategy = Parse(R"({"asynchronous": true, "vertical_sync": true, "micro_batch": 2,
      "stages": [{"nodes": ["n0", "module:a"], "devices": [0]}, {"nodes": ["*"], "devices": [1]}]})");
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  EXPECT_TRUE(strategy->asynchronous && strategy->vertical_sync);
}

TEST_F(ManualPlanTest, SaysHowGradientsAreCut) {
  const std::string rest = R"("micro_batch": 2, "stages": [{"nodes": ["*"], "devices": [0]}]})";
  EXPECT_EQ(Parse("{" + rest)->bucket_bytes, 0);
  EXPECT_EQ(Parse(R"({"bucket_bytes": 25e6, )" + rest)->bucket_bytes, 25'000'000);
}

TEST_F(ManualPlanTest, SaysWhetherOptimizerStateIsSharedOut) {
  const std::string rest = R"("micro_batch": 2, "stages": [{"nodes": ["*"], "devices": [0]}]})";
  EXPECT_EQ(Parse("{" + rest)->optimizer_sharding, OptimizerSharding::kNone);
  EXPECT_EQ(Parse(R"({"optimizer_sharding": "states", )" + rest)->optimizer_sharding,
            OptimizerSharding::kStates);
  EXPECT_EQ(Parse(R"({"optimizer_sharding": "gradients", )" + rest)->optimizer_sharding,
            OptimizerSharding::kGradients);
}

TEST_F(ManualPlanTest, WhatIsWrongIsNamed) {
  const auto stages = [](const std::string& list) {
    return R"({"micro_batch": 2, "stages": [)" + list + "]}";
  };
  const std::string all = R"("nodes": ["*"], "devices": [0])";
  const std::pair<std::string, const char*> cases[] = {
      {"", "options.manual: the planner \"manual\" needs a plan"},
      {" ", "options.manual, line 1, column 2: not JSON"},
      {"[]", "options.manual: the file is not an object"},
      {R"({"stage": []})", "options.manual: stage is not a known field"},
      {stages(""), "options.manual: stages is empty"},
      {stages("{" + all + R"(, "mem": 1})"), "stages[0].mem is not a known field"},
      {R"({"kind": "tree", "stages": [{)" + all + "}]}", "kind is neither"},
      {R"({"vertical_sync": true, "micro_batch": 2, "stages": [{)" + all + "}]}",
       "vertical_sync is of asynchronous plans only"},
      {R"({"bucket_bytes": -1, "micro_batch": 2, "stages": [{)" + all + "}]}",
       "bucket_bytes is negative"},
      {R"({"optimizer_sharding": "all", "micro_batch": 2, "stages": [{)" + all + "}]}",
       "optimizer_sharding is neither"},
      {R"({"optimizer_sharding": "states", "asynchronous": true, "micro_batch": 2, "stages": [{)" +
           all + "}]}",
       "optimizer_sharding is of synchronous plans only"},
      {R"({"optimizer_sharding": "gradients", "asynchronous": true, "micro_batch": 2, "stages": [{)" +
           all + "}]}",
       "optimizer_sharding is of synchronous plans only"},
      {R"({"stages": [{)" + all + "}]}", "stages[0].micro_batch is missing"},
      {stages("{" + all + R"(, "micro_batch": 3})"), "stages[0].micro_batch is 3, which does not"},
      {stages("{" + all + R"(, "micro_batch": 0})"), "stages[0].micro_batch is 0, which does not"},
      {stages("{" + all + R"(, "k": 0})"), "stages[0].k is less than 1"},
      {stages("{" + all + R"(, "in_flight": -4})"), "stages[0].in_flight is less than 1"},
      {stages(R"({"nodes": ["*"], "devices": []})"), "stages[0].devices is empty"},
      {stages(R"({"nodes": ["*"], "devices": [4]})"), "stages[0].devices[0] is 4; the cluster has"},
      {stages(R"({"nodes": ["*"], "devices": ["x"]})"),
       "devices[0] names the unknown device \"x\""},
      {stages(R"({"nodes": ["*"], "devices": [1.5]})"), "devices[0] is neither a number nor"},
      {stages(R"({"nodes": [], "devices": [1]})"), "stages[0].nodes is empty"},
      {stages(R"({"nodes": ["n9"], "devices": [1]})"), "nodes[0] names the unknown node \"n9\""},
      {stages(R"({"nodes": ["n0..n9"], "devices": [1]})"), "there is no such node as its last"},
      {stages(R"({"nodes": ["n5..n0"], "devices": [1]})"), "ends before it begins"},
      {stages(R"({"nodes": ["module:b"], "devices": [1]})"), "unknown module \"b\""},
      {stages(R"({"nodes": ["n0"], "devices": [1]})"), "stages leaves out node \"n1\""},
      {stages(R"({"nodes": ["*", "*"], "devices": [1]})"), "nodes[1] is the second \"*\""},
      {stages(R"({"nodes": ["n0..n2"], "devices": [1]}, {"nodes": ["module:a"], "devices": [0]})"),
       "stages[1].nodes[0] names node \"n1\", which stages[0] has already"},
      {stages(R"({"nodes": ["n1..n5"], "devices": [1]}, {"nodes": ["n0"], "devices": [0]})"),
       "stages is not in order: stages[0] reads from stages[1]"},
      {R"({"micro_batch": 2, "orders": ["device x"], "stages": [{)" + all + "}]}", "orders"},
      {R"({"micro_batch": 2, "orders": [1], "stages": [{)" + all + "}]}", "not a list of lines"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(Error(text), HasSubstr(message)) << text;
}

TEST_F(ManualPlanTest, TheFrontDoorJudgesIt) {
  SearchContext context;
  const char* good = R"({"micro_batch": 2, "stages": [{"nodes": ["n0", "module:a"], "devices": [0]},
                         {"nodes": ["*"], "devices": [1], "k": 2, "micro_batch": 4}]})";
  const auto response = SolvePlan(Request(good), context);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_TRUE(response->best);
  EXPECT_EQ(response->best->plan.strategy.stages.size(), 2u);
  EXPECT_EQ(response->best->plan.provenance.planner, "manual");

  // An order that waits for itself is the user's mistake.
  const char* deadlock = R"({"micro_batch": 4, "stages": [
      {"nodes": ["n0..n2"], "devices": [0]}, {"nodes": ["*"], "devices": [1]}],
      "orders": ["device 0: F0.0 B0.0 F0.1 B0.1", "device 1: F1.0 F1.1 B1.0 B1.1"]})";
  const auto stuck = SolvePlan(Request(deadlock), context);
  EXPECT_EQ(stuck.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(stuck.status().message()), HasSubstr("options.manual: "));

  EXPECT_THAT(std::string(SolvePlan(Request(""), context).status().message()),
              HasSubstr("needs a plan"));
}

TEST_F(ManualPlanTest, DamagedTextNeverCrashes) {
  const std::string text = R"({"kind": "graph", "micro_batch": 2, "stages": [
      {"nodes": ["n0..n2", "n3"], "devices": [0, 1], "k": 1, "in_flight": 4},
      {"nodes": ["*"], "devices": ["node0/device3"], "recompute": true}],
      "orders": ["device 0: F0.0"]})";
  std::mt19937 random(2);
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = text;
    for (int k = 0; k < 2; ++k) {
      damaged[random() % damaged.size()] = static_cast<char>(32 + random() % 95);
    }
    SearchContext context;
    (void)SolvePlan(Request(damaged), context);
  }
}

}  // namespace
}  // namespace stagewright
