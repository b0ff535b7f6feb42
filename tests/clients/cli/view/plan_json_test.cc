#include "clients/cli/view/plan_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/clients/cli/view/branched_plan.h"

namespace stagewright::cli {
namespace {

TEST(PlanJson, HasStagesWithNamesAndSuccessors) {
  v1::PlanResponse response = BranchedPlan();
  response.set_lower_bound_ns(1'600'000);
  const nlohmann::json json = PlanJson(response, BranchedNames());
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

TEST(PlanJson, OrdersNameDevices) {
  v1::PlanResponse response = BranchedPlan();
  v1::DeviceOrder* order = response.mutable_best()->mutable_strategy()->add_orders();
  order->set_device(3);
  order->add_steps()->set_stage(1);
  order->mutable_steps(0)->set_pass(v1::PASS_FORWARD);
  EXPECT_EQ(PlanJson(response, BranchedNames())["orders"],
            nlohmann::json::array({"device node0/gpu3: F1.0"}));
}

}  // namespace
}  // namespace stagewright::cli
