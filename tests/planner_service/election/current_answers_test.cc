#include "planner_service/election/current_answers.h"

#include <gtest/gtest.h>

#include <atomic>

#include "stagewright/v1/job_service.pb.h"
#include "tests/planner_service/service/server_fixture.h"

namespace stagewright {
namespace {

using CurrentAnswersTest = ServerTest;

TEST_F(CurrentAnswersTest, NothingIsAnsweredOnceAnotherMayLead) {
  std::atomic<bool> leads = true;
  ServerOptions options = TestOptions();
  options.intercept = [&] { return OnlyCurrentAnswers([&] { return leads.load(); }); };
  Start(options);
  const auto list = [&] {
    grpc::ClientContext context;
    v1::ListJobsResponse answer;
    return jobs_->ListJobs(&context, {}, &answer);
  };
  const auto get = [&] {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_name("jobs/1");
    v1::GetJobResponse answer;
    return jobs_->GetJob(&context, request, &answer);
  };
  EXPECT_TRUE(list().ok());
  EXPECT_EQ(get().error_code(), grpc::StatusCode::NOT_FOUND);
  leads = false;
  for (const grpc::Status& status : {list(), get()}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_FALSE(status.error_details().empty());  // When to ask again.
  }
  leads = true;
  EXPECT_TRUE(list().ok());
}

}  // namespace
}  // namespace stagewright
