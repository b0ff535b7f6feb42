// What the log says of calls that change something, and which are refused.
#include "planner_service/service/job_rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/service/server_fixture.h"

namespace stagewright {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOperator[] = "operators-token-001";

class JobRpcTest : public ServerTest {
 protected:
  static ServerOptions WithTokens() {
    const std::string file = ::testing::TempDir() + "/job_rpc_tokens";
    std::ofstream(file) << kOperator << " operator olga\nworkers-token-00001 worker w\n";
    ServerOptions options = TestOptions();
    options.door.token_file = file;
    options.door.audit_log = ::testing::TempDir() + "/job_rpc_audit";
    return options;
  }

  static void Show(grpc::ClientContext& context, const std::string& token) {
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  }

  static v1::ConnectRequest RegistrationOf(const std::string& worker) {
    v1::ConnectRequest connect;
    v1::Register* message = connect.mutable_register_();
    message->set_worker(worker);
    v1::DeviceKind* kind = message->add_kinds();
    kind->set_name("cpu");
    kind->set_flops_per_second(1e9);
    kind->set_memory_bytes_per_second(1e10);
    v1::Device* device = message->add_devices();
    device->set_name("cpu0");
    device->set_memory_bytes(int64_t{1} << 30);
    return connect;
  }

  // A worker "w" for as long as the test takes.
  void ConnectWorker(const std::string& token = "") {
    Show(worker_, token);
    stream_ = workers_->Connect(&worker_);
    v1::ConnectResponse welcome;
    ASSERT_TRUE(stream_->Write(RegistrationOf("w")) && stream_->Read(&welcome));
  }

  void TearDown() override {
    if (stream_ == nullptr) return;
    worker_.TryCancel();
    stream_->Finish();
  }

  // The log of a call that changes the worker.
  std::string LogOf(v1::WorkerAvailability availability, const std::string& token = "",
                    const std::string& worker = "w") {
    v1::SetWorkerAvailabilityRequest request;
    request.set_name(worker);
    request.set_availability(availability);
    grpc::ClientContext context;
    Show(context, token);
    v1::SetWorkerAvailabilityResponse response;
    ::testing::internal::CaptureStderr();
    const grpc::Status status = jobs_->SetWorkerAvailability(&context, request, &response);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(status.ok(), worker == "w") << status.error_message();
    return log;
  }

  grpc::ClientContext worker_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ConnectRequest, v1::ConnectResponse>> stream_;
};

TEST_F(JobRpcTest, LogsWhichWorkerIsOpenedOrClosedAndFromWhere) {
  Start();
  ConnectWorker();
  const std::string from = " worker=w client=ipv4:127\\.0\\.0\\.1:";
  EXPECT_THAT(LogOf(v1::WORKER_AVAILABILITY_CORDONED), ContainsRegex("worker cordoned" + from));
  EXPECT_THAT(LogOf(v1::WORKER_AVAILABILITY_OPEN), ContainsRegex("worker uncordoned" + from));
  EXPECT_THAT(LogOf(v1::WORKER_AVAILABILITY_DRAINING), ContainsRegex("worker drained" + from));
  EXPECT_THAT(LogOf(v1::WORKER_AVAILABILITY_CORDONED, "", "nobody"), Not(HasSubstr("cordoned")));
}

TEST_F(JobRpcTest, LogsWhichWorkerIsNotLetInAndWhy) {
  Start();
  ConnectWorker();
  v1::ConnectRequest other = RegistrationOf("stale");
  other.mutable_register_()->set_version("9.9.9");
  ::testing::internal::CaptureStderr();
  grpc::ClientContext context;
  const auto stream = workers_->Connect(&context);
  stream->Write(other);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ContainsRegex("warning worker not let in worker=stale why=.*all workers must be of"));
}

TEST_F(JobRpcTest, DevicesThatNoJobGetsAreNotCountedAsFree) {
  ServerOptions options = TestOptions();
  options.metrics_listen = "127.0.0.1:0";
  Start(options);
  ConnectWorker();
  const auto counted = [this](const char* state) {
    return Metric(absl::StrCat("stagewright_planner_devices{state=\"", state, "\"}"));
  };
  const auto await = [&](const char* state) {
    for (int i = 0; i < 100 && counted(state) != 1; ++i) absl::SleepFor(absl::Milliseconds(300));
    EXPECT_EQ(counted(state), 1) << state;
  };
  await("free");
  LogOf(v1::WORKER_AVAILABILITY_CORDONED);
  await("cordoned");
  EXPECT_EQ(counted("free"), 0);
  EXPECT_EQ(counted("quarantined"), 0);
}

TEST_F(JobRpcTest, LogsWhoOpensOrClosesAWorker) {
  Start(WithTokens());
  ConnectWorker("workers-token-00001");
  EXPECT_THAT(LogOf(v1::WORKER_AVAILABILITY_CORDONED, kOperator),
              HasSubstr("worker cordoned worker=w who=olga client="));
}

TEST_F(JobRpcTest, LogsTheRequestAndTheClientOfASubmit) {
  Start();
  v1::SubmitJobRequest request;
  *request.mutable_spec() = testing::SmallSpec();
  request.set_request_id("once");
  v1::SubmitJobResponse response;
  grpc::ClientContext context;
  ::testing::internal::CaptureStderr();
  const grpc::Status status = jobs_->SubmitJob(&context, request, &response);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ContainsRegex("submitted job=jobs/1 state=pending request=once client=ipv4:127\\."));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(JobRpcTest, AJobIsPlannedHoweverManyCallsSearch) {
  ServerOptions options = TestOptions();
  options.planning_threads = 1;
  options.planning_queue = 1;
  Start(options);
  ConnectWorker();
  grpc::ClientContext contexts[2];  // One search runs, and one fills the queue.
  std::vector<std::future<grpc::Status>> calls;
  for (grpc::ClientContext& context : contexts) {
    calls.push_back(std::async(std::launch::async, [&, seed = calls.size()] {
      v1::PlanRequest request = EndlessRequest();
      request.mutable_options()->set_seed(seed);  // Equal ones would share a search.
      v1::PlanResponse response;
      return planner_->Plan(&context, request, &response);
    }));
    absl::SleepFor(absl::Seconds(1));
  }
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = testing::SmallSpec();
  submit.mutable_spec()->set_num_devices(1);
  submit.mutable_spec()->mutable_plan_options()->set_num_stages(1);
  v1::SubmitJobResponse submitted;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->SubmitJob(&context, submit, &submitted).ok());
  v1::GetJobRequest asked;
  asked.set_name(submitted.job().name());
  v1::Job job;
  for (int i = 0; i < 600 && job.state() != v1::JOB_STATE_STARTING; ++i) {
    absl::SleepFor(absl::Milliseconds(50));
    grpc::ClientContext getting;
    v1::GetJobResponse got;
    ASSERT_TRUE(jobs_->GetJob(&getting, asked, &got).ok());
    job = got.job();
  }
  EXPECT_EQ(job.state(), v1::JOB_STATE_STARTING) << job.message();
  for (grpc::ClientContext& other : contexts) other.TryCancel();
  for (auto& call : calls) EXPECT_EQ(call.get().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(JobRpcTest, APlanThatNoDevicesCanFollowIsNotSubmitted) {
  Start();
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = testing::SmallSpec();
  submit.mutable_spec()->set_planner("manual");
  const auto status = [&](bool only, const std::string& devices) {
    submit.set_validate_only(only);
    submit.mutable_spec()->mutable_plan_options()->set_manual(absl::StrCat(
        R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [)", devices, "]}]}"));
    grpc::ClientContext context;
    v1::SubmitJobResponse submitted;
    return jobs_->SubmitJob(&context, submit, &submitted);
  };
  for (const bool only : {true, false}) {
    const grpc::Status refused = status(only, "0, 0");
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(refused.error_message(), HasSubstr("spec.plan_options.manual: C3"));
    // As google.rpc.BadRequest.
    EXPECT_THAT(refused.error_details(), HasSubstr("type.googleapis.com/google.rpc.BadRequest"));
    EXPECT_THAT(refused.error_details(), HasSubstr("spec.plan_options.manual"));
  }
  v1::ListJobsResponse list;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->ListJobs(&context, {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
  for (const bool only : {true, false}) {
    const grpc::Status taken = status(only, "0, 1");
    EXPECT_TRUE(taken.ok()) << taken.error_message();
  }
}

}  // namespace
}  // namespace stagewright
