#include "planner_service/election/follower_planner.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "planner_service/election/follower.h"
#include "planner_service/store/sqlite_store.h"
#include "tests/planner_service/service/server_fixture.h"
#include "tests/planner_service/store/temporary_folder.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

// A follower of nobody.
class FollowerPlannerTest : public ::testing::Test {
 protected:
  void Start(const DoorOptions& door) {
    std::shared_ptr<Door> opened = Door::Open("127.0.0.1:0", "", door).value();
    FollowerOptions options{"127.0.0.1:0"};
    options.planner =
        FollowerPlanner::Make(2, 8, opened, OpenSqliteStore(":memory:").value().store);
    follower_ = Follower::Start(options).value();
    planner_ = v1::PlannerService::NewStub(
        grpc::CreateChannel(follower_->address(), grpc::InsecureChannelCredentials()));
  }

  grpc::Status Plan(v1::PlanResponse* response, const std::string& token = "") {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    return planner_->Plan(&context, SmallRequest(), response);
  }

  std::unique_ptr<Follower> follower_;
  std::unique_ptr<v1::PlannerService::Stub> planner_;
};

TEST_F(FollowerPlannerTest, PlansWithoutALeaderAndLeavesTheRestToOne) {
  Start({});
  v1::PlanResponse planned;
  const grpc::Status status = Plan(&planned);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_GT(planned.best().evaluation().iteration_ns(), 0);
  EXPECT_EQ(planned.basis().profiles_size(), 1);
  ASSERT_TRUE(Plan(&planned).ok());
  EXPECT_FALSE(planned.cached());  // Measurements may be others by now.

  v1::ValidateRequest question;
  *question.mutable_problem() = SmallRequest().problem();
  *question.mutable_strategy() = planned.best().strategy();
  grpc::ClientContext validating, simulating, explaining, listing, streaming, asking;
  v1::ValidateResponse valid;
  EXPECT_TRUE(planner_->Validate(&validating, question, &valid).ok());
  EXPECT_TRUE(valid.valid()) << valid.violation();
  v1::SimulateRequest simulate;
  *simulate.mutable_problem() = question.problem();
  *simulate.mutable_strategy() = question.strategy();
  v1::SimulateResponse simulated;
  EXPECT_TRUE(planner_->Simulate(&simulating, simulate, &simulated).ok());
  v1::ExplainRequest explain;
  *explain.mutable_problem() = question.problem();
  *explain.mutable_strategy() = question.strategy();
  v1::ExplainResponse explained;
  EXPECT_TRUE(planner_->Explain(&explaining, explain, &explained).ok());
  v1::ListPlannersResponse planners;
  EXPECT_TRUE(planner_->ListPlanners(&listing, {}, &planners).ok());
  v1::PlanStreamRequest stream;
  *stream.mutable_plan() = SmallRequest();
  const auto reader = planner_->PlanStream(&streaming, stream);
  v1::PlanStreamResponse answer;
  while (reader->Read(&answer)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(answer.has_final());

  v1::GetServerResponse server;
  const grpc::Status unknown = planner_->GetServer(&asking, {}, &server);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(unknown.error_message(), HasSubstr("no planner leads"));
}

TEST_F(FollowerPlannerTest, HoldsCallersToTheDoor) {
  const testing::TemporaryFolder folder;
  DoorOptions door;
  door.token_file = folder.path() / "tokens";
  std::ofstream(door.token_file) << "viewer-viewer-viewer viewer vera\n"
                                    "submitter-submitter submitter alice\n";
  Start(door);
  v1::PlanResponse planned;
  EXPECT_EQ(Plan(&planned).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Plan(&planned, "viewer-viewer-viewer").error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(Plan(&planned, "submitter-submitter").ok());
  grpc::ClientContext context;
  v1::PlanStreamRequest stream;
  const auto reader = planner_->PlanStream(&context, stream);
  v1::PlanStreamResponse answer;
  EXPECT_FALSE(reader->Read(&answer));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(FollowerPlannerTest, EndsWithItsSearches) {
  Start({});
  grpc::ClientContext context;
  v1::PlanStreamRequest stream;
  *stream.mutable_plan() = EndlessRequest();
  const auto reader = planner_->PlanStream(&context, stream);
  v1::PlanStreamResponse answer;
  ASSERT_TRUE(reader->Read(&answer));
  follower_.reset();
  while (reader->Read(&answer)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace stagewright
