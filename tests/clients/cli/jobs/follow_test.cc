#include "clients/cli/jobs/follow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "stagewright/v1/job_service.grpc.pb.h"
#include "tests/common/channel/loopback_server.h"

namespace stagewright::cli {
namespace {

using ::testing::ElementsAre;

v1::WatchJobResponse At(int64_t version, v1::JobState state) {
  v1::WatchJobResponse response;
  response.mutable_job()->set_name("jobs/7");
  response.mutable_job()->set_version(version);
  response.mutable_job()->set_state(state);
  return response;
}

// Answers one watch after the other by script.
class ScriptedPlanner : public v1::JobService::Service {
 public:
  struct Answer {
    std::vector<v1::WatchJobResponse> messages;
    grpc::Status end;
  };

  explicit ScriptedPlanner(std::vector<Answer> answers) : answers_(std::move(answers)) {}

  grpc::Status WatchJob(grpc::ServerContext* /*context*/, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
    absl::MutexLock lock(&mutex_);
    const size_t watch = asked_.size();
    asked_.push_back(request->after_version());
    if (watch >= answers_.size()) return grpc::Status(grpc::StatusCode::INTERNAL, "no answer left");
    for (const v1::WatchJobResponse& message : answers_[watch].messages) writer->Write(message);
    return answers_[watch].end;
  }

  const std::string& address() const { return server_.address(); }
  // After which versions.
  std::vector<int64_t> asked() {
    absl::MutexLock lock(&mutex_);
    return asked_;
  }

 private:
  const std::vector<Answer> answers_;
  absl::Mutex mutex_;
  std::vector<int64_t> asked_ ABSL_GUARDED_BY(mutex_);
  testing::LoopbackServer server_{this};
};

const grpc::Status kUnknown(grpc::StatusCode::OUT_OF_RANGE, "jobs/7 is at version 5");

TEST(Follow, BeginsAgainAtAPlannerWithAnOlderState) {
  ScriptedPlanner planner(
      {{{At(8, v1::JOB_STATE_RUNNING)}, {grpc::StatusCode::UNAVAILABLE, "gone"}},
       {{}, kUnknown},
       {{At(5, v1::JOB_STATE_SUCCEEDED)}, grpc::Status::OK}});
  Connection connection(planner.address(), {});
  const auto job = Follow(connection, "jobs/7");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->version(), 5);
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(planner.asked(), ElementsAre(0, 8, 0));
}

TEST(Follow, AnErrorOfTheFirstWatchIsTheCallers) {
  ScriptedPlanner planner({{{}, kUnknown}});
  Connection connection(planner.address(), {});
  EXPECT_TRUE(absl::IsOutOfRange(Follow(connection, "jobs/7").status()));
  EXPECT_THAT(planner.asked(), ElementsAre(0));
}

}  // namespace
}  // namespace stagewright::cli
