#include "clients/cli/files/saved_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace stagewright::cli {
namespace {

using ::testing::HasSubstr;

class SavedPlanTest : public ::testing::Test {
 protected:
  SavedPlanTest()
      : directory_(std::filesystem::temp_directory_path() /
                   ("stagewright_saved_plan_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(directory_);
    for (int stage = 0; stage < 2; ++stage) {
      v1::Stage* added = response_.mutable_best()->mutable_strategy()->add_stages();
      added->add_nodes(stage);
      added->add_devices(stage);
      response_.mutable_best()->mutable_evaluation()->add_stages();
    }
    v1::StageEdge* edge = response_.mutable_best()->mutable_strategy()->add_edges();
    edge->set_from(0);
    edge->set_to(1);
    graph_.set_name("net");
    graph_.add_nodes()->set_name("n0");
    graph_.mutable_nodes(0)->set_module("encoder.0");
    graph_.mutable_nodes(0)->set_target("aten.relu.default");
  }
  ~SavedPlanTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name = "plan.json") const { return directory_ / name; }
  // What reading a plan says that was saved as it is now.
  std::string Refusal() const {
    EXPECT_EQ(SavePlan(response_, graph_, Path()), absl::OkStatus());
    const absl::Status status = LoadPlan(Path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  std::filesystem::path directory_;
  v1::PlanResponse response_;
  v1::Graph graph_;
};

TEST_F(SavedPlanTest, APlanRoundTripsWithTheNamesOfItsGraph) {
  ASSERT_EQ(SavePlan(response_, graph_, Path()), absl::OkStatus());
  const auto saved = LoadPlan(Path());
  ASSERT_EQ(saved.status(), absl::OkStatus());
  EXPECT_EQ(saved->response.SerializeAsString(), response_.SerializeAsString());
  EXPECT_EQ(saved->graph.name(), "net");
  ASSERT_EQ(saved->graph.nodes_size(), 1);
  EXPECT_EQ(saved->graph.nodes(0).name(), "n0");
  EXPECT_EQ(saved->graph.nodes(0).module(), "encoder.0");
  EXPECT_EQ(saved->graph.nodes(0).target(), "") << "names only";
}

TEST_F(SavedPlanTest, APlanThatPointsNowhereIsRefused) {
  v1::Plan* best = response_.mutable_best();
  best->mutable_strategy()->mutable_edges(0)->set_to(2);
  EXPECT_THAT(Refusal(), HasSubstr("response.best.strategy.edges: no edge 0 -> 2"));
  best->mutable_strategy()->mutable_edges(0)->set_to(0);
  EXPECT_THAT(Refusal(), HasSubstr("no edge 0 -> 0"));
  best->mutable_strategy()->mutable_edges(0)->set_to(1);
  best->mutable_strategy()->mutable_stages(1)->set_nodes(0, -1);
  EXPECT_THAT(Refusal(), HasSubstr("no node -1"));
  best->mutable_strategy()->mutable_stages(1)->set_nodes(0, 1);
  best->mutable_strategy()->mutable_stages(1)->set_devices(0, -2);
  EXPECT_THAT(Refusal(), HasSubstr("no device -2"));
  best->mutable_strategy()->mutable_stages(1)->set_devices(0, 1);
  response_.mutable_sequential()->mutable_evaluation()->add_stages();
  EXPECT_THAT(Refusal(), HasSubstr("response.sequential: a report per stage is missing"));
}

TEST_F(SavedPlanTest, WhatIsNoSavedPlanIsNamed) {
  EXPECT_EQ(LoadPlan(Path()).status().code(), absl::StatusCode::kNotFound);
  for (const char* text : {"", "[]", "{\"response\": {}}", "{\"response\": {}, \"gr"}) {
    std::ofstream(Path()) << text;
    EXPECT_THAT(std::string(LoadPlan(Path()).status().message()),
                HasSubstr("not a saved plan (or truncated)"))
        << text;
  }
  std::ofstream(Path()) << R"({"response": {"wrong": 1}, "graph": {}})";
  EXPECT_EQ(LoadPlan(Path()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagewright::cli
