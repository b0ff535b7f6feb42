#include "planner_service/front_door/check_unplaced.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/error_details.h"
#include "common/strategy/orders.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random.h"
#include "tests/support/random_orders.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::Rng;
using testing::Uniform;
using Json = nlohmann::json;

// Four linear layers n0 to n3, each reading the one before, and the loss n4.
Graph Chain() {
  GraphBuilder builder("chain");
  Argument x = builder.Feature("x", {16});
  for (int i = 0; i < 4; ++i) x = builder.Linear(x, 16, 16);
  builder.Loss(x, {16});
  return builder.Build();
}

class CheckUnplacedTest : public ::testing::Test {
 protected:
  CheckUnplacedTest() {
    request_.graph = &graph_;
    request_.planner = "manual";
    request_.mini_batch = 8;
  }

  absl::Status CheckManual(const std::string& plan, int32_t devices = 2) {
    request_.options.manual = plan;
    return CheckUnplaced(request_, nullptr, devices).status();
  }

  Strategy TwoStages() const {
    return testing::MakeStrategy(graph_, {{0, 1}, {2, 3, 4}}, {{0}, {1}}, 8, 4);
  }

  const Graph graph_ = Chain();
  PlanRequest request_;
};

void ExpectRefused(const absl::Status& status, const std::string& field, const std::string& told) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << told;
  EXPECT_EQ(DetailsOf(status).field, field) << told;
  EXPECT_THAT(std::string(status.message()), HasSubstr(told));
}

TEST_F(CheckUnplacedTest, TakesPlansByHandForDevicesThatAreNotThereYet) {
  for (const char* plan : {
           R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [0, 1]}]})",
           R"({"micro_batch": 4, "stages": [{"nodes": ["n0"], "devices": ["b/0"]},
                                            {"nodes": ["*"], "devices": ["a/0"]}]})",
           // By name, in whatever order the devices will have.
           R"({"micro_batch": 4, "stages": [{"nodes": ["n0"], "devices": ["b/0"]},
                                            {"nodes": ["*"], "devices": ["a/0"]}],
               "orders": ["device a/0: F1.0 B1.0 F1.1 B1.1",
                          "device b/0: F0.0 F0.1 B0.0 B0.1"]})",
           // Device 0 may be a/0: which order is whose is not known.
           R"({"micro_batch": 4, "stages": [{"nodes": ["n0"], "devices": ["b/0"]},
                                            {"nodes": ["*"], "devices": ["a/0"]}],
               "orders": ["device 0: F1.0 B1.0 F1.1 B1.1",
                          "device 1: F0.0 F0.1 B0.0 B0.1"]})",
           R"({"micro_batch": 4, "stages": [{"nodes": ["n0"], "devices": [0]},
                                            {"nodes": ["*"], "devices": [1]}],
               "orders": ["device a/0: F0.0 F0.1 B0.0 B0.1",
                          "device b/0: F1.0 B1.0 F1.1 B1.1"]})",
           R"({"micro_batch": 4, "stages": [{"nodes": ["n0"], "devices": ["b/0", 0]},
                                            {"nodes": ["*"], "devices": [1]}]})",
       }) {
    EXPECT_EQ(CheckManual(plan), absl::OkStatus()) << plan;
  }
}

TEST_F(CheckUnplacedTest, RefusesPlansByHandThatNoClusterTakes) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "options.manual: the planner \"manual\" needs a plan"},
      {R"({"micro_batch": NaN})", "options.manual, line 1, column 17: not JSON"},
      {R"({"micro_batch": 1e999})", "options.manual is not JSON: number overflow"},
      {R"({"micro_batch": 4, "stages": []})", "options.manual: stages is empty"},
      {R"({"micro_batch": 3, "stages": [{"nodes": ["*"], "devices": [0]}]})",
       "options.manual: stages[0].micro_batch is 3, which does not divide 8"},
      {R"({"micro_batch": 1e18, "stages": [{"nodes": ["*"], "devices": [0]}]})",
       "options.manual: stages[0].micro_batch is 1000000000000000000, which"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [0], "k": 0}]})",
       "options.manual: stages[0].k is less than 1"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [0], "in_flight": 800}]})",
       "options.manual: C4: stage 0: 800 samples in flight"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [2]}]})",
       "options.manual: stages[0].devices has 2; there are devices 0 to 1"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [5000]}]})",
       "options.manual: stages[0].devices[0] is 5000"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [-1]}]})",
       "options.manual: stages[0].devices[0] is -1"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": ["a", "a"]}]})",
       "options.manual: C3: stage 0 lists device 0 twice"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["nine"], "devices": [0]}]})",
       "options.manual: stages[0].nodes[0] names the unknown node \"nine\""},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["n0..n3"], "devices": [0]}]})",
       "options.manual: stages leaves out node \"n4\""},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["n0"], "devices": [0]},
                                        {"nodes": ["n0..n4"], "devices": [1]}]})",
       "which stages[0] has already"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["n3..n4"], "devices": [0]},
                                        {"nodes": ["*"], "devices": [1]}]})",
       "options.manual: stages is not in order: stages[0] reads from stages[1]"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [0]}],
           "orders": ["device 0: F0.0 X0.1"]})",
       "options.manual: orders : line 1"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": ["a"]}],
           "orders": ["device a: F0.0 B0.0 F0.1"]})",
       "options.manual: C4: orders: device 0: backward of stage 0, micro-batch 1 is missing"},
      {R"({"micro_batch": 4, "stages": [{"nodes": ["n0"], "devices": [0]},
                                        {"nodes": ["*"], "devices": [1]}],
           "orders": ["device 0: F0.0 B0.0 F0.1 B0.1",
                      "device 1: F1.0 F1.1 B1.0 B1.1"]})",
       "deadlock"},
      {R"({"micro_batch": 4, "vertical_sync": true,
           "stages": [{"nodes": ["*"], "devices": [0]}]})",
       "options.manual: vertical_sync is of asynchronous plans only"},
  };
  for (const auto& [plan, told] : cases) ExpectRefused(CheckManual(plan), "options.manual", told);
  std::string devices = "0";
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&devices, ",\"w/", i, "\"");
  ExpectRefused(
      CheckManual(absl::StrCat(R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [)",
                               devices, "]}]}"),
                  /*devices=*/0),
      "options.manual", "is one device more than the 1024");
}

TEST_F(CheckUnplacedTest, SaysWhetherThePlanIsAsynchronous) {
  request_.options.manual = R"({"micro_batch": 4, "asynchronous": true,
                                "stages": [{"nodes": ["*"], "devices": [0]}]})";
  EXPECT_TRUE(CheckUnplaced(request_, nullptr, 0).value());
  Strategy strategy = TwoStages();
  EXPECT_FALSE(CheckUnplaced(request_, &strategy, 0).value());
  strategy.asynchronous = true;
  EXPECT_TRUE(CheckUnplaced(request_, &strategy, 0).value());
  request_.planner = "";
  EXPECT_FALSE(CheckUnplaced(request_, nullptr, 0).value());
}

TEST_F(CheckUnplacedTest, RefusesOptionsAndOperatorsToCut) {
  request_.planner = "";
  const auto check = [&](const auto& spoil) {
    PlanRequest request = request_;
    spoil(request);
    return CheckUnplaced(request, nullptr, 0).status();
  };
  EXPECT_EQ(check([](PlanRequest&) {}), absl::OkStatus());
  ExpectRefused(check([](PlanRequest& r) { r.mini_batch = int64_t{1} << 40; }), "mini_batch",
                "mini_batch: must be at most");
  ExpectRefused(check([](PlanRequest& r) { r.options.micro_batch = 3; }), "options.micro_batch",
                "options.micro_batch: 3 does not divide mini_batch 8");
  ExpectRefused(check([](PlanRequest& r) {
                  r.planner = "graphpipe";
                  r.options.asynchronous = true;
                }),
                "options.asynchronous", "planner 'graphpipe' makes synchronous plans only");
  ExpectRefused(check([](PlanRequest& r) {
                  r.options.splits = {{"nobody", 2}};
                }),
                "options.splits", "nobody");
}

TEST_F(CheckUnplacedTest, RefusesStrategiesThatNoClusterTakes) {
  const Strategy good = TwoStages();
  EXPECT_EQ(CheckUnplaced(request_, &good, 2).status(), absl::OkStatus());
  const std::pair<std::function<void(Strategy&)>, const char*> cases[] = {
      {[](Strategy& s) { s.stages.clear(); }, "strategy: stages: there is none"},
      {[](Strategy& s) { s.stages[0].nodes[0] = NodeId(99); }, "node 99 does not exist"},
      {[](Strategy& s) { s.stages[0].nodes.pop_back(); }, "C1: node \"n1\" is in no stage"},
      {[](Strategy& s) { s.stages[1].devices = {DeviceId(2)}; }, "device 2 does not exist"},
      {[](Strategy& s) { s.stages[1].devices = {DeviceId(-7)}; }, "device -7 does not exist"},
      {[](Strategy& s) { s.stages[1].micro_batch = 3; }, "micro-batch 3 does not divide"},
      {[](Strategy& s) { s.stages[1].micro_batch = 0; }, "micro-batch 0 does not divide"},
      {[](Strategy& s) { s.stages[1].schedule.k = -1; }, "k is -1, not positive"},
      {[](Strategy& s) { s.stages[1].schedule.in_flight = 7; }, "7 samples in flight"},
      {[](Strategy& s) { s.bucket_bytes = -1; }, "bucket_bytes is negative"},
      {[](Strategy& s) { s.edges.clear(); }, "C2: stage 1 reads from stage 0"},
      {[](Strategy& s) {
         s.splits = {{"nobody", 2}};
       },
       "nobody"},
      {[](Strategy& s) {
         s.orders = {{DeviceId(0), {{StageId(0), Pass(77), 0}}}};
       },
       "pass 77 is not known"},
  };
  for (const auto& [spoil, told] : cases) {
    Strategy strategy = TwoStages();
    spoil(strategy);
    ExpectRefused(CheckUnplaced(request_, &strategy, 2).status(), "strategy", told);
  }
  Strategy other = TwoStages();
  other.mini_batch = 16;
  ExpectRefused(CheckUnplaced(request_, &other, 2).status(), "mini_batch",
                "the strategy is for 16");
}

// The strategy as somebody might write it down, with devices by name or by number.
Json ByHand(const testing::RandomCase& random, bool by_name) {
  const auto device = [&](DeviceId id) {
    return by_name ? Json(random.cluster.device(id).name) : Json(id.value());
  };
  const Strategy& strategy = random.strategy;
  Json plan = {{"kind", strategy.kind == StrategyKind::kGraph ? "graph" : "sequential"},
               {"stages", Json::array()}};
  for (const Stage& stage : strategy.stages) {
    Json out = {{"nodes", Json::array()},
                {"devices", Json::array()},
                {"micro_batch", stage.micro_batch},
                {"k", stage.schedule.k},
                {"in_flight", stage.schedule.in_flight},
                {"recompute", stage.recompute}};
    for (const NodeId node : stage.nodes) out["nodes"].push_back(random.graph.node(node).name);
    for (const DeviceId id : stage.devices) out["devices"].push_back(device(id));
    plan["stages"].push_back(out);
  }
  const std::vector<std::string> lines =
      absl::StrSplit(OrdersToText(strategy.orders), '\n', absl::SkipEmpty());
  for (size_t i = 0; i < lines.size(); ++i) {
    const DeviceId id = strategy.orders[i].device;
    plan["orders"].push_back(by_name ? absl::StrCat("device ", random.cluster.device(id).name,
                                                    lines[i].substr(lines[i].find(':')))
                                     : lines[i]);
  }
  return plan;
}

// One thing that may break it, or not: constants may be anywhere.
void Change(Rng& rng, const Graph& graph, Json& plan) {
  const auto stages = static_cast<int64_t>(plan["stages"].size());
  Json& stage = plan["stages"][Uniform(rng, 0, stages - 1)];
  switch (Uniform(rng, 0, 5)) {
    case 0:
    case 1:
      stage["nodes"].push_back(graph.node(NodeId(Uniform(rng, 0, int64_t{graph.size()} - 1))).name);
      break;
    case 2:
      stage["nodes"].erase(Uniform(rng, 0, static_cast<int64_t>(stage["nodes"].size()) - 1));
      break;
    case 3:
      stage["in_flight"] = Uniform(rng, 1, 32);
      break;
    case 4:
      stage["micro_batch"] = Uniform(rng, 1, 8);
      break;
    default:
      std::swap(plan["stages"][0], stage);
  }
}

TEST(CheckUnplacedProperty, RefusesNothingThatTheCasesOwnClusterTakes) {
  Rng rng(20261127);
  int taken = 0, refused = 0, with_orders = 0;
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE(i);
    testing::RandomCase random = testing::MakeRandomCase(rng);
    if (i % 3 == 0) testing::DrawOrders(rng, random.graph, random.strategy);
    with_orders += !random.strategy.orders.empty();
    PlanRequest request;
    request.graph = &random.graph;
    request.mini_batch = random.strategy.mini_batch;
    for (const int32_t devices : {0, random.cluster.size()}) {
      ASSERT_EQ(CheckUnplaced(request, &random.strategy, devices).status(), absl::OkStatus());
    }
    request.planner = "manual";
    Json plan = ByHand(random, /*by_name=*/i % 2 == 0);
    if (i % 4 > 0) Change(rng, random.graph, plan);
    request.options.manual = plan.dump();
    request.cluster = &random.cluster;
    SearchContext context;
    const auto solved = SolvePlan(request, context);
    request.cluster = nullptr;
    const absl::Status unplaced = CheckUnplaced(request, nullptr, random.cluster.size()).status();
    if (solved.ok()) {
      ++taken;
      EXPECT_EQ(unplaced, absl::OkStatus()) << plan.dump(1);
    } else {
      refused += !unplaced.ok();
    }
  }
  EXPECT_GT(taken, 50);
  EXPECT_GT(refused, 50);
  EXPECT_GT(with_orders, 20);
}

}  // namespace
}  // namespace stagewright
