#include "clients/cli/view/stage_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/clients/cli/view/branched_plan.h"

namespace stagewright::cli {
namespace {

using ::testing::ElementsAre;

const v1::Stage& StageOf(const v1::PlanResponse& response, int32_t stage) {
  return response.best().strategy().stages(stage);
}

std::string Modules(const v1::PlanResponse& response, int32_t stage, const PlanContext& context) {
  return ModuleText(StageOf(response, stage), context,
                    NodeRanks(response.best().strategy(), context));
}

TEST(Devices, AreInTheOrderOfTheStage) {
  EXPECT_THAT(Devices(StageOf(BranchedPlan(), 0), BranchedNames()),
              ElementsAre("node0/gpu2", "node0/gpu0", "node0/gpu1"));
  EXPECT_THAT(Devices(StageOf(BranchedPlan(), 1), {}), ElementsAre("device 3"));
}

TEST(DevicesText, JoinsRunsOfDevicesAndOfMachines) {
  PlanContext context;
  v1::Stage stage;
  for (int32_t device = 0; device < 8; ++device) {
    context.device_names.push_back(absl::StrCat("node", device / 2, "/gpu", device % 2));
    if (device != 1) stage.add_devices(7 - device);
  }
  EXPECT_EQ(DevicesText(stage, context), "node[0-2]/gpu[0-1] node3/gpu1");
}

TEST(Nodes, LeavesOutWhatHasNoName) {
  v1::PlanResponse response = BranchedPlan();
  response.mutable_best()->mutable_strategy()->mutable_stages(1)->add_nodes(7);
  EXPECT_THAT(Nodes(StageOf(response, 1), BranchedNames()), ElementsAre("n3", "n4"));
}

TEST(Modules, AreNamedOnceAndInOrder) {
  EXPECT_THAT(cli::Modules(StageOf(BranchedPlan(), 0), BranchedNames()),
              ElementsAre("a.0", "a.1", "a.2"));
  EXPECT_THAT(cli::Modules(StageOf(BranchedPlan(), 1), BranchedNames()), ElementsAre("b.0"));
  EXPECT_THAT(cli::Modules(StageOf(BranchedPlan(), 2), BranchedNames()), ElementsAre());
}

TEST(NodeRanks, CountsOnlyNodesThatHaveAStage) {
  v1::PlanResponse response = BranchedPlan();
  response.mutable_best()->mutable_strategy()->mutable_stages(1)->clear_nodes();
  EXPECT_THAT(NodeRanks(response.best().strategy(), BranchedNames()),
              ElementsAre(0, 1, 2, -1, -1, 3, 4));
}

TEST(ModuleText, IsARangeOnlyWhereNoOtherStageHasANodeBetween) {
  v1::PlanResponse response = BranchedPlan();
  PlanContext context = BranchedNames();
  context.node_modules = {"a", "b", "c", "d", "e", "f", "g"};
  EXPECT_EQ(Modules(response, 0, context), "a .. c");
  v1::Strategy& strategy = *response.mutable_best()->mutable_strategy();
  strategy.mutable_stages(0)->set_nodes(1, 3);
  strategy.mutable_stages(1)->set_nodes(0, 1);
  EXPECT_EQ(Modules(response, 0, context), "a, c, d");
}

TEST(ModuleText, CountsWhatHasNoRoom) {
  v1::PlanResponse response = BranchedPlan();
  PlanContext context = BranchedNames();
  context.node_modules = {"a", "b", "c", "d", "e", "f", "g"};
  v1::Strategy& strategy = *response.mutable_best()->mutable_strategy();
  strategy.mutable_stages(0)->clear_nodes();
  strategy.mutable_stages(1)->clear_nodes();
  strategy.mutable_stages(2)->clear_nodes();
  for (int32_t node = 0; node < 7; ++node) strategy.mutable_stages(node % 2)->add_nodes(node);
  EXPECT_EQ(Modules(response, 0, context), "a, c, e (+1)");
  EXPECT_EQ(Modules(response, 2, context), "0 nodes");
}

}  // namespace
}  // namespace stagewright::cli
