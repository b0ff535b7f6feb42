// Watching jobs over real gRPC on loopback.
#include "planner_service/service/watch_call.h"

#include <gmock/gmock.h>
#include <grpc/grpc_security_constants.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/service/server_fixture.h"
#include "tests/planner_service/store/temporary_folder.h"

namespace stagewright {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

using WatchCallTest = ServerTest;

TEST_F(WatchCallTest, ShutdownEndsOpenStreamsAndSearches) {
  Start();
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = testing::SmallSpec();
  v1::SubmitJobResponse job;
  grpc::ClientContext submitting;
  ASSERT_TRUE(jobs_->SubmitJob(&submitting, submit, &job).ok());
  grpc::ClientContext watching, connecting, planning;
  v1::WatchJobRequest watch;
  watch.set_name(job.job().name());
  auto watched = jobs_->WatchJob(&watching, watch);
  v1::WatchJobResponse seen;
  ASSERT_TRUE(watched->Read(&seen));
  auto worker = workers_->Connect(&connecting);
  v1::PlanStreamRequest endless;
  *endless.mutable_plan() = EndlessRequest();
  auto plans = planner_->PlanStream(&planning, endless);

  const absl::Time begin = absl::Now();
  server_->Shutdown(absl::Seconds(1));
  server_.reset();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  while (watched->Read(&seen)) {
  }
  EXPECT_EQ(watched->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(worker->Finish().ok());
  for (v1::PlanStreamResponse message; plans->Read(&message);) {
  }
  EXPECT_FALSE(plans->Finish().ok());
}

TEST_F(WatchCallTest, WatchShowsThePresentStateAndEveryLaterOne) {
  Start();
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = testing::SmallSpec();
  submit.set_request_id("one");
  v1::SubmitJobResponse job;
  grpc::ClientContext submitting, watching, cancelling;
  ASSERT_TRUE(jobs_->SubmitJob(&submitting, submit, &job).ok());
  v1::WatchJobRequest watch;
  watch.set_name(job.job().name());
  auto stream = jobs_->WatchJob(&watching, watch);
  v1::WatchJobResponse seen;
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_EQ(seen.job().state(), v1::JOB_STATE_PENDING);
  v1::CancelJobRequest cancel;
  cancel.set_name(job.job().name());
  v1::CancelJobResponse cancelled;
  ASSERT_TRUE(jobs_->CancelJob(&cancelling, cancel, &cancelled).ok());
  while (stream->Read(&seen)) {
  }
  EXPECT_EQ(seen.job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(stream->Finish().ok());

  grpc::ClientContext resuming;  // Nothing is new after the last version.
  watch.set_after_version(seen.job().version());
  auto resumed = jobs_->WatchJob(&resuming, watch);
  EXPECT_FALSE(resumed->Read(&seen));
  EXPECT_TRUE(resumed->Finish().ok());

  grpc::ClientContext ahead;  // The version was seen, but then an older state was restored.
  watch.set_after_version(seen.job().version() + 1);
  auto unknown = jobs_->WatchJob(&ahead, watch);
  EXPECT_FALSE(unknown->Read(&seen));
  const grpc::Status status = unknown->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE) << status.error_message();
  EXPECT_THAT(status.error_details(), HasSubstr("WATCH_VERSION_UNKNOWN"));

  grpc::ClientContext nothing;
  watch.set_name("jobs/404");
  auto none = jobs_->WatchJob(&nothing, watch);
  EXPECT_FALSE(none->Read(&seen));
  EXPECT_EQ(none->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(WatchCallTest, StreamsThatNobodyReadsHoldNobodyUp) {
  constexpr int kStreams = 200;
  Start(WithMetrics());
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = testing::SmallSpec();
  v1::SubmitJobResponse job;
  grpc::ClientContext submitting;
  ASSERT_TRUE(jobs_->SubmitJob(&submitting, submit, &job).ok());
  v1::WatchJobRequest watch;
  watch.set_name(job.job().name());
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>>> streams;
  for (int i = 0; i < kStreams; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    streams.push_back(jobs_->WatchJob(contexts.back().get(), watch));
  }
  const std::string open = "stagewright_planner_rpc_open{method=\"WatchJob\"}";
  for (int i = 0; i < 100 && Metric(open) < kStreams; ++i) absl::SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(Metric(open), kStreams);
  v1::GetJobRequest get;
  get.set_name(job.job().name());
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::GetJobResponse seen;
    EXPECT_TRUE(jobs_->GetJob(&context, get, &seen).ok());
  }
  v1::CancelJobRequest cancel;
  cancel.set_name(job.job().name());
  grpc::ClientContext cancelling;
  v1::CancelJobResponse cancelled;
  ASSERT_TRUE(jobs_->CancelJob(&cancelling, cancel, &cancelled).ok());
  // Each is told of the end in the end, though not of all between.
  for (auto& stream : streams) {
    v1::WatchJobResponse seen;
    v1::JobState last = v1::JOB_STATE_UNSPECIFIED;
    while (stream->Read(&seen)) last = seen.job().state();
    EXPECT_EQ(last, v1::JOB_STATE_CANCELLED);
    EXPECT_TRUE(stream->Finish().ok());
  }
}

TEST(WatchResponses, AreEncodedOncePerSnapshot) {
  WatchResponses responses;
  v1::Job job;
  job.set_message(std::string(1000, 'x'));  // Small ones are copied.
  const auto first = std::make_shared<const v1::Job>(job);
  job.set_version(2);
  const auto second = std::make_shared<const v1::Job>(job);
  const auto bytes = [&](const JobWatches::Snapshot& snapshot) {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(responses.Of(snapshot).Dump(&slices).ok());
    EXPECT_EQ(slices.size(), 1u);
    return slices[0];
  };
  const grpc::Slice once = bytes(first), again = bytes(first), other = bytes(second);
  EXPECT_EQ(once.begin(), again.begin()) << "the same bytes, not equal ones";
  EXPECT_NE(once.begin(), other.begin());
  v1::WatchJobResponse response;
  ASSERT_TRUE(response.ParseFromArray(other.begin(), static_cast<int>(other.size())));
  EXPECT_EQ(response.job().version(), 2);
}

TEST_F(WatchCallTest, NobodyTakesAllStreams) {
  const testing::TemporaryFolder folder;
  ServerOptions options = TestOptions();
  options.owner_streams = 30;
  options.door.token_file = folder.path() / "tokens";
  std::ofstream(options.door.token_file) << "sam-sam-sam-sam-sam submitter sam\n"
                                         << "vera-vera-vera-vera viewer vera\n";
  Start(options);
  const auto jobs = v1::JobService::NewStub(
      grpc::CreateChannel(server_->address(), grpc::experimental::LocalCredentials(LOCAL_TCP)));
  const std::string sam = "Bearer sam-sam-sam-sam-sam", vera = "Bearer vera-vera-vera-vera";
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = testing::SmallSpec();
  v1::SubmitJobResponse job;
  grpc::ClientContext submitting;
  submitting.AddMetadata("authorization", sam);
  ASSERT_TRUE(jobs->SubmitJob(&submitting, submit, &job).ok());
  v1::WatchJobRequest watch;
  watch.set_name(job.job().name());
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>> reader;
  };
  std::vector<std::unique_ptr<Watch>> watches;
  v1::WatchJobResponse update;
  const auto open = [&](const std::string& who) {
    watches.push_back(std::make_unique<Watch>());
    watches.back()->context.AddMetadata("authorization", who);
    watches.back()->reader = jobs->WatchJob(&watches.back()->context, watch);
    return watches.back()->reader->Read(&update);
  };
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(open(sam)) << i;
  EXPECT_FALSE(open(sam));
  const grpc::Status full = watches.back()->reader->Finish();
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(full.error_details(), HasSubstr("RetryInfo"));
  EXPECT_TRUE(open(vera));
  for (auto& one : watches) one->context.TryCancel();
  watches.erase(watches.end() - 2);  // It is finished.
  for (auto& one : watches) one->reader->Finish();
}

}  // namespace
}  // namespace stagewright
