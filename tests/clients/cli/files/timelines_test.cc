#include "clients/cli/files/timelines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace stagewright::cli {
namespace {

using ::testing::ElementsAre;

class TimelinesTest : public ::testing::Test {
 protected:
  ~TimelinesTest() override { std::filesystem::remove(path_); }

  static void AddEvent(v1::Plan& plan) {
    v1::TraceEvent* event = plan.mutable_evaluation()->add_timeline();
    event->set_device(0);
    event->mutable_action()->set_kind(v1::ACTION_KIND_FORWARD);
    event->mutable_action()->set_end(2);
    event->set_start_ns(1000);
    event->set_end_ns(3000);
  }
  // The names of the processes in the trace, which viewers show as groups.
  std::set<std::string> Groups() const {
    std::set<std::string> names;
    std::ifstream file(path_);
    const auto trace = nlohmann::json::parse(file);
    for (const auto& event : trace["traceEvents"]) {
      if (event["name"] == "process_name") names.insert(event["args"]["name"]);
    }
    return names;
  }

  const std::string path_ = std::filesystem::temp_directory_path() /
                            ("stagewright_timelines_" + std::to_string(getpid()));
};

TEST_F(TimelinesTest, AreThoseThatThePlansCarry) {
  v1::PlanResponse response;
  response.mutable_best();
  EXPECT_EQ(SaveTimelines(response, {}, path_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(path_));

  AddEvent(*response.mutable_best());
  ASSERT_EQ(SaveTimelines(response, {"gpu0"}, path_), absl::OkStatus());
  EXPECT_THAT(Groups(), ElementsAre("plan: gpu0"));
  AddEvent(*response.mutable_sequential());
  ASSERT_EQ(SaveTimelines(response, {"gpu0"}, path_), absl::OkStatus());
  EXPECT_THAT(Groups(), ElementsAre("plan: gpu0", "sequential: gpu0"));
}

}  // namespace
}  // namespace stagewright::cli
