#include "clients/cli/plan_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void AddStage(v1::Plan& plan, std::vector<int32_t> nodes, std::vector<int32_t> devices) {
  v1::Stage* stage = plan.mutable_strategy()->add_stages();
  for (int32_t node : nodes) stage->add_nodes(node);
  for (int32_t device : devices) stage->add_devices(device);
  stage->set_micro_batch(2);
  stage->set_in_flight(4);
  stage->set_k(1);
  plan.mutable_evaluation()->add_stages()->set_in_flight(4);
}

void AddEdge(v1::Plan& plan, int32_t from, int32_t to) {
  v1::StageEdge* edge = plan.mutable_strategy()->add_edges();
  edge->set_from(from);
  edge->set_to(to);
}

// Two branches and what joins them, on five devices of two nodes.
v1::PlanResponse Branches() {
  v1::PlanResponse response;
  response.set_termination(v1::TERMINATION_FEASIBLE);
  v1::Plan& plan = *response.mutable_best();
  plan.mutable_strategy()->set_mini_batch(8);
  AddStage(plan, {0, 1, 2}, {2, 0, 1});
  AddStage(plan, {3, 4}, {3});
  AddStage(plan, {5, 6}, {4});
  AddEdge(plan, 0, 2);
  AddEdge(plan, 1, 2);
  plan.mutable_evaluation()->set_depth(2);
  plan.mutable_evaluation()->set_iteration_ns(2'000'000);
  return response;
}

PlanContext Names() {
  return {"net",
          {"n0", "n1", "n2", "n3", "n4", "n5", "n6"},
          {"a.0", "a.1", "a.2", "b.0", "b.0", "", ""},
          {"node0/gpu0", "node0/gpu1", "node0/gpu2", "node0/gpu3", "node1/gpu0"}};
}

TEST(PlanText, ShowsTheGraphOfStagesAndALineForEach) {
  const std::string text = PlanText(Branches(), Names());
  EXPECT_THAT(text, HasSubstr("net: 3 stages, depth 2\n"));
  EXPECT_THAT(text, HasSubstr("  in  [0] -> 2   [1] -> 2\n  out [2]\n"));
  EXPECT_THAT(text, HasSubstr("[0]    a.0 .. a.2  node0/gpu[0-2]  1F1B"));
  EXPECT_THAT(text, HasSubstr("[1]    b.0         node0/gpu3      1F1B"));
  EXPECT_THAT(text, HasSubstr("[2]    2 nodes     node1/gpu0      1F1B"));
  EXPECT_THAT(text, HasSubstr("graph (GPP)"));
  EXPECT_THAT(text, Not(HasSubstr("no plan")));
}

TEST(PlanText, ComparesWithOneDeviceAndTheBound) {
  v1::PlanResponse response = Branches();
  for (int i = 0; i < 2; ++i) response.mutable_best()->mutable_evaluation()->add_devices();
  response.set_one_device_ns(5'000'000);
  response.set_lower_bound_ns(1'600'000);
  std::string text = PlanText(response, Names());
  EXPECT_THAT(text, HasSubstr(": 2.50x\n"));
  EXPECT_THAT(text, HasSubstr("this one takes 25.0 % more\n"));
  response.set_one_device_ns(2'000'000);
  EXPECT_THAT(PlanText(response, Names()), HasSubstr(": it does not pay\n"));
}

TEST(PlanText, SaysWhyThereIsNoPlan) {
  v1::PlanResponse response;
  response.set_termination(v1::TERMINATION_INFEASIBLE);
  response.set_reason("no memory");
  EXPECT_EQ(PlanText(response, {}), "no plan (infeasible): no memory\n");
}

TEST(PlanJson, HasStagesWithNamesAndSuccessors) {
  v1::PlanResponse response = Branches();
  response.set_lower_bound_ns(1'600'000);
  const nlohmann::json json = PlanJson(response, Names());
  EXPECT_EQ(json["model"], "net");
  EXPECT_EQ(json["termination"], "feasible");
  EXPECT_DOUBLE_EQ(json["iteration_seconds"], 0.002);
  EXPECT_DOUBLE_EQ(json["gap_ratio"], 0.25);
  EXPECT_EQ(json["devices_used"], 5);
  EXPECT_FALSE(json.contains("sequential"));
  ASSERT_EQ(json["stages"].size(), 3u);
  const nlohmann::json& stage = json["stages"][1];
  EXPECT_EQ(stage["nodes"], nlohmann::json::array({"n3", "n4"}));
  EXPECT_EQ(stage["modules"], nlohmann::json::array({"b.0"}));
  EXPECT_EQ(stage["devices"], nlohmann::json::array({"node0/gpu3"}));
  EXPECT_EQ(stage["successors"], nlohmann::json::array({2}));
  EXPECT_EQ(stage["schedule"], "1F1B");
}

TEST(ScheduleText, NamesWhatPeopleCallIt) {
  v1::Strategy strategy = Branches().best().strategy();
  const auto text = [&] { return ScheduleText(strategy, 0); };
  strategy.mutable_stages(0)->set_k(2);
  EXPECT_EQ(text(), "2F2B");
  strategy.mutable_stages(0)->set_in_flight(8);
  strategy.mutable_stages(0)->set_recompute(true);
  EXPECT_EQ(text(), "GPipe, recompute");
  strategy.mutable_stages(0)->set_recompute(false);
  strategy.mutable_stages(2)->set_devices(0, 2);
  EXPECT_EQ(text(), "looped x2, GPipe");
  v1::ComputeStep* step = strategy.add_orders()->add_steps();
  EXPECT_EQ(text(), "looped x2");
  step->set_pass(v1::PASS_BACKWARD_INPUT);
  EXPECT_EQ(text(), "looped x2, split backward");
  EXPECT_EQ(ScheduleText(strategy, 1), "ordered");
  strategy.set_asynchronous(true);
  EXPECT_EQ(text(), "async 1F1B");
  strategy.set_vertical_sync(true);
  EXPECT_EQ(text(), "async 1F1B, vertical sync");
}

TEST(ContextOf, TakesNamesByIndex) {
  v1::Graph graph;
  graph.set_name("net");
  graph.add_nodes()->set_name("n0");
  v1::Plan plan;
  v1::DeviceReport* device = plan.mutable_evaluation()->add_devices();
  device->set_device(1);
  device->set_name("gpu1");
  const PlanContext context = ContextOf(graph, plan);
  EXPECT_EQ(context.model, "net");
  EXPECT_THAT(context.node_names, ::testing::ElementsAre("n0"));
  EXPECT_THAT(context.device_names, ::testing::ElementsAre("", "gpu1"));
}

}  // namespace
}  // namespace stagewright::cli
