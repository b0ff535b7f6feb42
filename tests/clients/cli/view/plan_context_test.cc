#include "clients/cli/view/plan_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright::cli {
namespace {

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
