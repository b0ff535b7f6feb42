#include "clients/cli/files/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "clients/cli/files/saved_plan.h"
#include "clients/cli/view/plan_json.h"

namespace stagewright::cli {
namespace {

class PlanFileTest : public ::testing::Test {
 protected:
  PlanFileTest() {
    graph_.set_name("net");
    for (const char* name : {"n0", "n1"}) graph_.add_nodes()->set_name(name);
    response_.set_termination(v1::TERMINATION_FEASIBLE);
    v1::Plan& plan = *response_.mutable_best();
    plan.mutable_strategy()->set_mini_batch(8);
    plan.mutable_evaluation()->set_iteration_ns(1000);
    for (int32_t stage = 0; stage < 2; ++stage) {
      v1::Stage* added = plan.mutable_strategy()->add_stages();
      added->add_nodes(stage);
      added->add_devices(stage);
      added->set_micro_batch(2);
      added->set_k(1);
      added->set_in_flight(4);
      plan.mutable_evaluation()->add_stages();
      v1::DeviceReport* device = plan.mutable_evaluation()->add_devices();
      device->set_device(stage);
      device->set_name(stage == 0 ? "gpu0" : "gpu1");
    }
  }
  ~PlanFileTest() override { std::filesystem::remove(path_); }

  void Write(const std::string& text) const { std::ofstream(path_) << text; }
  absl::StatusOr<std::string> Read() const {
    ASSIGN_OR_RETURN(PlanFile file, ReadPlanFile(path_));
    return std::move(file.plan);
  }

  const std::string path_ = std::filesystem::temp_directory_path() /
                            ("stagewright_plan_file_" + std::to_string(getpid()));
  v1::PlanResponse response_;
  v1::Graph graph_;
};

TEST_F(PlanFileTest, APlanByHandStaysAsItIs) {
  for (const char* text : {"{\"stages\": [{\"nodes\": [\"n0\"]}]}", "no JSON"}) {
    Write(text);
    EXPECT_EQ(Read().value(), text);
  }
  std::filesystem::remove(path_);
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PlanFileTest, OnlyASavedPlanSaysWhatItWasMadeFrom) {
  ASSERT_TRUE(SavePlan(response_, graph_, path_).ok());
  const absl::Status none = ReadPlanBasis(path_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(none)) << none;
  EXPECT_THAT(std::string(none.message()), ::testing::HasSubstr(path_));
  response_.mutable_basis()->set_mini_batch(8);
  ASSERT_TRUE(SavePlan(response_, graph_, path_).ok());
  ASSERT_TRUE(ReadPlanBasis(path_).ok());
  EXPECT_EQ(ReadPlanBasis(path_)->mini_batch(), 8);
  Write("{\"stages\": []}");
  EXPECT_TRUE(absl::IsInvalidArgument(ReadPlanBasis(path_).status()));
}

TEST_F(PlanFileTest, OperatorsToCutAreOptionsOfTheProblem) {
  Write("{\"split_operators\": {\"n0\": 4}, \"stages\": []}");
  v1::PlanOptions options;
  ASSERT_TRUE(SetManualPlan(path_, options).ok());
  EXPECT_EQ(options.manual(), "{\"stages\":[]}");
  ASSERT_EQ(options.splits_size(), 1);
  EXPECT_EQ(options.splits(0).node(), "n0");
  EXPECT_EQ(options.splits(0).parts(), 4);

  v1::OperatorSplit* split = response_.mutable_best()->mutable_strategy()->add_splits();
  split->set_node("n1");
  split->set_parts(2);
  Write(PlanJson(response_, ContextOf(graph_, response_.best())).dump());
  ASSERT_TRUE(SetManualPlan(path_, options).ok());
  EXPECT_EQ(options.splits(0).node(), "n0") << "what is named is kept";
  options.clear_splits();
  ASSERT_TRUE(SetManualPlan(path_, options).ok());
  EXPECT_EQ(options.splits(0).node(), "n1");
  for (const char* bad : {"3", "[\"n0\"]", "{\"n0\": 1}", "{\"n0\": \"2\"}"}) {
    Write(std::string("{\"split_operators\": ") + bad + "}");
    EXPECT_EQ(SetManualPlan(path_, options).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(PlanFileTest, APrintedPlanAndASavedOneAreTheSameByHand) {
  Write(PlanJson(response_, ContextOf(graph_, response_.best())).dump());
  const std::string printed = Read().value();
  ASSERT_EQ(SavePlan(response_, graph_, path_), absl::OkStatus());
  EXPECT_EQ(Read().value(), printed);

  const auto plan = nlohmann::json::parse(printed);
  ASSERT_EQ(plan["stages"].size(), 2u);
  const auto expected = nlohmann::json::parse(
      R"({"nodes": ["n1"], "devices": ["gpu1"], "micro_batch": 2, "k": 1, "in_flight": 4, "recompute": false})");
  EXPECT_EQ(plan["stages"][1], expected);
  EXPECT_FALSE(plan.contains("iteration_seconds")) << "what was found is no part of the question";
}

TEST_F(PlanFileTest, APlanThatWasFoundSaysTheDevicesOfItsCluster) {
  v1::Strategy& strategy = *response_.mutable_best()->mutable_strategy();
  strategy.mutable_stages(0)->set_devices(0, 1);
  strategy.mutable_stages(1)->set_devices(0, 0);
  v1::PlanOptions options;
  ASSERT_EQ(SavePlan(response_, graph_, path_), absl::OkStatus());
  ASSERT_EQ(SetManualPlan(path_, options), absl::OkStatus());
  EXPECT_THAT(options.found_for(), ::testing::ElementsAre("gpu0", "gpu1"));
  const auto stages = nlohmann::json::parse(options.manual())["stages"];
  EXPECT_EQ(stages[0]["devices"], nlohmann::json({"gpu1"}));
  Write(PlanJson(response_, ContextOf(graph_, response_.best())).dump());
  EXPECT_THAT(ReadPlanFile(path_)->found_for, ::testing::ElementsAre("gpu0", "gpu1"));
  // A plan by hand is for the devices that it names.
  Write(R"({"stages": [{"nodes": ["*"], "devices": ["gpu0"]}], "devices": [{"device": "gpu0"}]})");
  ASSERT_EQ(SetManualPlan(path_, options), absl::OkStatus());
  EXPECT_THAT(options.found_for(), ::testing::IsEmpty());
}

TEST_F(PlanFileTest, AnAnswerWithoutAPlanIsRefused) {
  Write(R"({"termination": "infeasible"})");
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Read().status().message()), ::testing::HasSubstr("holds no plan"));
}

}  // namespace
}  // namespace stagewright::cli
