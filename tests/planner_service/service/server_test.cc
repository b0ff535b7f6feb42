// The planning service over real gRPC on loopback.
#include "planner_service/service/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <map>
#include <sstream>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/wire/graph_file.h"
#include "planner_service/wire/plan_basis.h"
#include "stagewright/v1/error_details.pb.h"
#include "stagewright/v1/job_service.grpc.pb.h"
#include "stagewright/v1/planner_service.grpc.pb.h"
#include "stagewright/v1/worker_service.grpc.pb.h"
#include "tests/planner_service/jobs/recording_store.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/service/server_fixture.h"

namespace stagewright {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

// One request to a service that this program has no stub of.
grpc::Status Ask(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                 const std::string& request, std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
  grpc::Slice slice(request);
  grpc::ByteBuffer in(&slice, 1), out;
  absl::Notification done;
  grpc::Status status;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &in, &out, [&](grpc::Status s) {
    status = std::move(s);
    done.Notify();
  });
  done.WaitForNotification();
  std::vector<grpc::Slice> slices;
  if (status.ok()) {
    EXPECT_TRUE(out.Dump(&slices).ok());
  }
  for (const grpc::Slice& s : slices)
    bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return status;
}

std::string Raw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                const std::string& request) {
  std::string bytes;
  const grpc::Status status = Ask(channel, method, request, bytes);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return bytes;
}

v1::ConnectRequest RegistrationOf(const std::string& name) {
  v1::ConnectRequest registration;
  v1::Register* worker = registration.mutable_register_();
  worker->set_worker(name);
  v1::DeviceKind* kind = worker->add_kinds();
  kind->set_name("cpu");
  kind->set_flops_per_second(1);
  kind->set_memory_bytes_per_second(1);
  worker->add_devices()->set_name("cpu0");
  worker->mutable_devices(0)->set_memory_bytes(1);
  return registration;
}

TEST_F(ServerTest, SaysThatItIsHealthyAndWhatItServes) {
  Start();
  EXPECT_EQ(Raw(channel_, "/grpc.health.v1.Health/Check", ""), "\x08\x01");  // status: SERVING
  for (const std::string service : {"stagewright.v1.PlannerService", "stagewright.v1.JobService",
                                    "stagewright.v1.ProfileService", "stagewright.v1.WorkerService",
                                    "stagewright.v1.TopologyService"}) {
    const std::string request =
        "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
    EXPECT_EQ(Raw(channel_, "/grpc.health.v1.Health/Check", request), "\x08\x01") << service;
  }
  const std::string services =  // list_services: ""
      Raw(channel_, kReflection, std::string("\x3a\0", 2));
  for (const char* service : {"stagewright.v1.PlannerService", "stagewright.v1.JobService",
                              "stagewright.v1.WorkerService", "grpc.health.v1.Health"}) {
    EXPECT_THAT(services, HasSubstr(service));
  }
}

TEST_F(ServerTest, SaysNothingOfItsServicesWhereWorkersComeIn) {
  ServerOptions options = TestOptions();
  options.worker_listen = "127.0.0.1:0";
  Start(options);
  std::string said;
  const std::string list("\x3a\0", 2);
  EXPECT_TRUE(Ask(channel_, kReflection, list, said).ok());
  const auto workers =
      grpc::CreateChannel(server_->worker_address(), grpc::InsecureChannelCredentials());
  EXPECT_EQ(Ask(workers, kReflection, list, said).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServerTest, PlansAndJudgesItsOwnPlanAsValid) {
  Start();
  v1::PlanRequest request = SmallRequest();
  request.set_compare_sequential(true);
  request.set_timeline(true);
  v1::PlanResponse response;
  const grpc::Status status = Plan(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_TRUE(response.has_best());
  EXPECT_THAT(response.termination(), AnyOf(v1::TERMINATION_OPTIMAL, v1::TERMINATION_FEASIBLE));
  EXPECT_GT(response.lower_bound_ns(), 0);
  EXPECT_LE(response.lower_bound_ns(), response.best().evaluation().iteration_ns());
  EXPECT_TRUE(response.has_sequential());

  v1::ValidateRequest validate;
  *validate.mutable_problem() = request.problem();
  *validate.mutable_strategy() = response.best().strategy();
  v1::ValidateResponse valid;
  grpc::ClientContext first;
  ASSERT_TRUE(planner_->Validate(&first, validate, &valid).ok());
  EXPECT_TRUE(valid.valid()) << valid.violation();
  EXPECT_THAT(valid.violation(), IsEmpty());

  validate.mutable_strategy()->mutable_stages(0)->clear_nodes();
  grpc::ClientContext second;
  ASSERT_TRUE(planner_->Validate(&second, validate, &valid).ok());
  EXPECT_FALSE(valid.valid());
  EXPECT_THAT(valid.violation(), Not(IsEmpty()));

  v1::SimulateRequest simulate;
  *simulate.mutable_problem() = request.problem();
  *simulate.mutable_strategy() = response.best().strategy();
  simulate.set_timeline(true);
  v1::SimulateResponse simulated;
  grpc::ClientContext third;
  ASSERT_TRUE(planner_->Simulate(&third, simulate, &simulated).ok());
  EXPECT_EQ(simulated.plan().evaluation().iteration_ns(),
            response.best().evaluation().iteration_ns());
  EXPECT_GT(simulated.plan().evaluation().timeline_size(), 0);
}

TEST_F(ServerTest, APlanSaysWhatItWasMadeFromAndIsNotAppliedWithoutIt) {
  Start();
  v1::PlanResponse response;
  ASSERT_TRUE(Plan(SmallRequest(), &response).ok());
  const v1::PlanBasis& basis = response.basis();
  EXPECT_EQ(basis.mini_batch(), 8);
  EXPECT_EQ(basis.operators_size(), SmallRequest().problem().graph().nodes_size() + 1);
  ASSERT_EQ(basis.devices_size(), 2);
  ASSERT_EQ(basis.profiles_size(), 1);
  EXPECT_EQ(basis.profiles(0).device_kind(), basis.devices(0).kind());

  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = testing::SmallSpec();
  *submit.mutable_plan_basis() = basis;
  for (const bool only : {true, false}) {
    submit.set_validate_only(only);
    grpc::ClientContext context;
    v1::SubmitJobResponse submitted;
    const grpc::Status refused = jobs_->SubmitJob(&context, submit, &submitted);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::ABORTED);
    EXPECT_THAT(refused.error_message(),
                HasSubstr("device " + basis.devices(0).name() + " is gone"));
    EXPECT_THAT(refused.error_message(), Not(HasSubstr("operator")));
  }
}

TEST_F(ServerTest, APlanWhoseBasisIsToHoldIsForItsOwnDevices) {
  Start();
  v1::SubmitJobRequest submit;
  v1::JobSpec& spec = *submit.mutable_spec();
  spec = testing::SmallSpec();
  spec.set_planner("manual");
  spec.set_num_devices(1);
  spec.mutable_plan_options()->set_manual(
      R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": ["w1/cpu0"]}]})");
  spec.mutable_plan_options()->add_found_for("w1/cpu0");
  const auto refusal = [&] {
    grpc::ClientContext context;
    v1::SubmitJobResponse submitted;
    return jobs_->SubmitJob(&context, submit, &submitted).error_message();
  };
  EXPECT_THAT(refusal(), HasSubstr("0 devices are connected, too few for the plan's 1"));
  v1::PlanningProblem problem;
  *problem.mutable_graph() = spec.graph();
  problem.set_mini_batch(spec.mini_batch());
  problem.set_optimizer(spec.optimizer().kind());
  *submit.mutable_plan_basis() = BasisOf(problem, {});
  EXPECT_THAT(refusal(), HasSubstr("0 devices are connected: start workers"));
}

TEST_F(ServerTest, ARepeatedSubmitFindsItsJobWhateverBecameOfThePlansBasis) {
  Start();
  v1::PlanResponse response;
  ASSERT_TRUE(Plan(SmallRequest(), &response).ok());
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = testing::SmallSpec();
  submit.set_request_id("once");
  v1::SubmitJobResponse first, again;
  grpc::ClientContext context, repeated;
  ASSERT_TRUE(jobs_->SubmitJob(&context, submit, &first).ok());
  *submit.mutable_plan_basis() = response.basis();
  const grpc::Status status = jobs_->SubmitJob(&repeated, submit, &again);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(again.job().name(), first.job().name());

  grpc::ClientContext other;
  submit.mutable_spec()->set_steps(submit.spec().steps() + 1);
  EXPECT_EQ(jobs_->SubmitJob(&other, submit, &again).error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(ServerTest, AStreamEndsWithTheSameAnswer) {
  Start();
  v1::PlanResponse once;
  ASSERT_TRUE(Plan(SmallRequest(), &once).ok());
  grpc::ClientContext context;
  v1::PlanStreamRequest request;
  *request.mutable_plan() = SmallRequest();
  auto stream = planner_->PlanStream(&context, request);
  std::vector<v1::PlanStreamResponse> messages;
  for (v1::PlanStreamResponse message; stream->Read(&message);) messages.push_back(message);
  ASSERT_TRUE(stream->Finish().ok());
  ASSERT_THAT(messages, Not(IsEmpty()));
  EXPECT_EQ(messages.back().final().best().fingerprint(), once.best().fingerprint());
  int64_t last = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i + 1 < messages.size(); ++i) {
    ASSERT_TRUE(messages[i].has_improvement());
    EXPECT_LT(messages[i].improvement().evaluation().iteration_ns(), last);
    last = messages[i].improvement().evaluation().iteration_ns();
  }
}

TEST_F(ServerTest, ListsItsPlannersWithOneDefault) {
  Start();
  grpc::ClientContext context;
  v1::ListPlannersResponse response;
  ASSERT_TRUE(planner_->ListPlanners(&context, {}, &response).ok());
  int defaults = 0;
  for (const v1::PlannerInfo& planner : response.planners()) {
    defaults += planner.is_default() ? 1 : 0;
    EXPECT_THAT(planner.description(), Not(IsEmpty()));
  }
  EXPECT_EQ(defaults, 1);
}

TEST_F(ServerTest, BadQuestionsGetTheRightCodeAndNameTheField) {
  Start();
  v1::PlanRequest request = SmallRequest();
  request.mutable_problem()->set_mini_batch(0);
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "mini");
  request = SmallRequest();
  request.mutable_problem()->set_cluster_preset("abacus:8");
  ExpectRefused(request, grpc::StatusCode::NOT_FOUND, "abacus");
  request = SmallRequest();
  request.mutable_problem()->clear_cluster_source();
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "cluster");
  request = SmallRequest();
  request.mutable_problem()->mutable_cluster()->set_name("empty");
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "device");
  request = SmallRequest();
  request.set_planner("oracle");
  ExpectRefused(request, grpc::StatusCode::NOT_FOUND, "oracle");
  request = SmallRequest();
  request.mutable_problem()->clear_graph();
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "graph");
  request = SmallRequest();  // Node 1 uses node 0.
  request.mutable_problem()->mutable_graph()->mutable_nodes(0)->add_after(1);
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "cycle through n0 -> n1 -> n0");
  request = SmallRequest();
  request.mutable_problem()->mutable_graph()->mutable_nodes(1)->clear_outputs();
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "nodes[");
  EXPECT_TRUE(Plan(SmallRequest()).ok());
}

TEST_F(ServerTest, WhatIsInfeasibleIsAnAnswer) {
  Start();
  v1::PlanRequest request = SmallRequest();
  request.mutable_options()->set_num_stages(2);
  request.mutable_options()->set_max_loops(1);
  request.mutable_problem()->set_cluster_preset("cpu:1");
  v1::PlanResponse response;
  const grpc::Status status = Plan(request, &response);
  if (status.ok()) {
    EXPECT_EQ(response.termination(), v1::TERMINATION_INFEASIBLE);
    EXPECT_THAT(response.reason(), Not(IsEmpty()));
  } else {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  }
}

TEST_F(ServerTest, AGraphOverTheMessageLimitIsRefused) {
  ServerOptions options = TestOptions();
  options.max_message_mib = 1;
  Start(options);
  v1::PlanRequest request = SmallRequest();
  request.mutable_problem()->mutable_graph()->set_producer(std::string(2 << 20, 'x'));
  ExpectRefused(request, grpc::StatusCode::RESOURCE_EXHAUSTED, "max");
  EXPECT_TRUE(Plan(SmallRequest()).ok());
}

TEST_F(ServerTest, AFullPoolRefusesAndCancelledSearchesMakeRoom) {
  ServerOptions options = TestOptions();
  options.planning_threads = 1;
  options.planning_queue = 1;
  Start(options);
  grpc::ClientContext contexts[2];
  std::vector<std::future<grpc::Status>> calls;
  for (grpc::ClientContext& context : contexts) {
    calls.push_back(std::async(std::launch::async, [&, seed = calls.size()] {
      v1::PlanRequest request = EndlessRequest();
      request.mutable_options()->set_seed(seed);  // Equal ones would share a search.
      v1::PlanResponse response;
      return planner_->Plan(&context, request, &response);
    }));
    absl::SleepFor(absl::Seconds(2));  // The first is being solved, the second waits.
  }
  grpc::Status refused;
  for (int i = 0; i < 100; ++i) {  // Until both have arrived.
    refused = Plan(SmallRequest(), nullptr, absl::Milliseconds(200));
    if (refused.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) break;
  }
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("limit 1"));
  v1::ErrorStatus details;
  ASSERT_TRUE(details.ParseFromString(refused.error_details()));
  std::map<std::string, std::string> by_type;
  for (const auto& detail : details.details()) by_type[detail.type_url()] = detail.value();
  v1::RetryInfo retry;
  ASSERT_TRUE(retry.ParseFromString(by_type["type.googleapis.com/google.rpc.RetryInfo"]));
  EXPECT_GE(retry.retry_delay().seconds(), 1);
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (auto& call : calls) EXPECT_EQ(call.get().error_code(), grpc::StatusCode::CANCELLED);
  // The only thread is free again long before the searches would have ended.
  const absl::Time begin = absl::Now();
  grpc::Status status;
  do {
    status = Plan(SmallRequest());
  } while (!status.ok() && absl::Now() < begin + absl::Seconds(20));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServerTest, HonoursTheDeadline) {
  Start();
  const absl::Time begin = absl::Now();
  v1::PlanResponse response;
  const grpc::Status status = Plan(EndlessRequest(), &response, absl::Seconds(2));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  if (status.ok()) {  // What was found in time, or that nothing was.
    EXPECT_THAT(response.termination(), AnyOf(v1::TERMINATION_FEASIBLE, v1::TERMINATION_LIMIT));
  } else {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(Plan(SmallRequest()).ok());
}

TEST_F(ServerTest, AnAddressInUseIsNamed) {
  Start(WithMetrics());
  ServerOptions options = TestOptions();
  options.listen = server_->address();
  absl::Status status = PlannerServer::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(server_->address()));
  options = TestOptions();
  options.metrics_listen = server_->metrics_address();
  status = PlannerServer::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(server_->metrics_address()));
  options = TestOptions();
  options.state = "/nonexistent/directory/state.db";
  status = PlannerServer::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/directory/state.db"));
}

TEST_F(ServerTest, AnAddressThatIsNoneIsRefused) {
  for (const char* address : {"127.0.0.1:99999", "127.0.0.1", "127.0.0.1:-1", "127.0.0.1:http"}) {
    ServerOptions options = TestOptions();
    options.listen = address;
    const absl::Status status = PlannerServer::Start(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr(address));
  }
}

TEST_F(ServerTest, AnEqualQuestionIsAnsweredByTheFirstSearch) {
  Start(WithMetrics());
  v1::PlanResponse first, again;
  ASSERT_TRUE(Plan(SmallRequest(), &first).ok());
  ASSERT_TRUE(Plan(SmallRequest(), &again).ok());
  EXPECT_FALSE(first.cached());
  EXPECT_TRUE(again.cached());
  again.clear_cached();
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(Metric("stagewright_planner_plan_cache_total{result=\"hit\"}"), 1);
  EXPECT_EQ(Metric("stagewright_planner_plan_seconds_count{source=\"call\"}"), 1);
}

TEST_F(ServerTest, SaysWhatItIs) {
  Start();
  v1::GetServerResponse server;
  grpc::ClientContext context;
  ASSERT_TRUE(planner_->GetServer(&context, v1::GetServerRequest(), &server).ok());
  EXPECT_THAT(server.version(), HasSubstr("."));
  EXPECT_EQ(server.state_path(), ":memory:");
  EXPECT_EQ(server.plans_waiting(), 0);
  EXPECT_GT(server.start_time().seconds(), 0);
}

TEST_F(ServerTest, WorkersMustRegisterFirstAndOnce) {
  Start();
  v1::ConnectRequest heartbeat;
  heartbeat.mutable_heartbeat();
  v1::ConnectResponse answer;
  grpc::ClientContext early;
  auto stream = workers_->Connect(&early);
  stream->Write(heartbeat);
  EXPECT_FALSE(stream->Read(&answer));
  grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("register"));

  v1::ConnectRequest registration;
  registration.mutable_register_()->set_worker("nameless devices");
  grpc::ClientContext bad;
  stream = workers_->Connect(&bad);
  stream->Write(registration);
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, HeartbeatsAreTakenWhileAJobIsWritten) {
  auto opened = std::make_unique<testing::RecordingStore>();
  testing::RecordingStore& store = *opened;
  ServerOptions options = TestOptions();
  options.open_store = [&] { return OpenedStore{std::move(opened), {}}; };
  Start(options);
  grpc::ClientContext connecting;
  auto stream = workers_->Connect(&connecting);
  v1::ConnectResponse answer;
  ASSERT_TRUE(stream->Write(RegistrationOf("steady")));
  ASSERT_TRUE(stream->Read(&answer));

  absl::Notification writing, written;
  store.FailWhen([&](const v1::Job&) {
    if (!writing.HasBeenNotified()) writing.Notify();
    written.WaitForNotification();
    return false;
  });
  auto submitted = std::async(std::launch::async, [&] {
    v1::SubmitJobRequest submit;
    *submit.mutable_spec() = testing::SmallSpec();
    grpc::ClientContext context;
    v1::SubmitJobResponse job;
    return jobs_->SubmitJob(&context, submit, &job).ok();
  });
  writing.WaitForNotification();
  const absl::Time begin = absl::Now();
  v1::ConnectRequest heartbeat;
  heartbeat.mutable_heartbeat();
  int64_t heard = 0;  // In seconds.
  while (heard < absl::ToUnixSeconds(begin) + 2 && absl::Now() < begin + absl::Seconds(20)) {
    EXPECT_TRUE(stream->Write(heartbeat));
    absl::SleepFor(absl::Milliseconds(100));
    grpc::ClientContext listing;
    listing.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(15)));
    v1::ListWorkersResponse workers;
    if (!jobs_->ListWorkers(&listing, {}, &workers).ok()) break;
    for (const v1::Worker& worker : workers.workers())
      heard = worker.last_heartbeat_time().seconds();
  }
  EXPECT_GE(heard, absl::ToUnixSeconds(begin) + 2);
  written.Notify();
  EXPECT_TRUE(submitted.get());
  store.FailWhen(nullptr);
}

TEST_F(ServerTest, ASilentWorkerLosesItsStream) {
  ServerOptions options = TestOptions();
  options.worker_timeout = absl::Milliseconds(600);
  Start(options);
  grpc::ClientContext context;
  auto stream = workers_->Connect(&context);
  v1::ConnectResponse answer;
  ASSERT_TRUE(stream->Write(RegistrationOf("sleepy")));
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.registered().heartbeat_interval_ns(), 150'000'000);
  v1::ListWorkersResponse workers;
  const absl::Time patience = absl::Now() + absl::Seconds(30);
  do {
    absl::SleepFor(absl::Milliseconds(100));
    grpc::ClientContext listing;
    ASSERT_TRUE(jobs_->ListWorkers(&listing, {}, &workers).ok());
  } while (workers.workers_size() > 0 && absl::Now() < patience);
  EXPECT_EQ(workers.workers_size(), 0);
  v1::ConnectRequest heartbeat;
  heartbeat.mutable_heartbeat();
  stream->Write(heartbeat);
  EXPECT_FALSE(stream->Read(&answer));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("silent"));
}

TEST_F(ServerTest, MetricsCountWhatHappened) {
  Start(WithMetrics());
  ASSERT_TRUE(Plan(SmallRequest()).ok());
  v1::PlanRequest unknown = SmallRequest();
  unknown.set_planner("oracle");
  EXPECT_FALSE(Plan(unknown).ok());
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = testing::SmallSpec();
  v1::SubmitJobResponse job;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->SubmitJob(&context, submit, &job).ok());
  v1::ReplanJobRequest replan;
  replan.set_name("jobs/99");
  v1::ReplanJobResponse better;
  grpc::ClientContext replanning;
  EXPECT_EQ(jobs_->ReplanJob(&replanning, replan, &better).error_code(),
            grpc::StatusCode::NOT_FOUND);
  // Gauges are sampled twice a second, and a call is open until a thread of the planner's comes to
  // it.
  const auto sampled = [this] {
    return Metric("stagewright_planner_jobs{state=\"pending\"}") == 1 &&
           Metric("stagewright_planner_devices{state=\"free\"}") == 0 &&
           Metric("stagewright_planner_rpc_open{method=\"Plan\"}") == 0;
  };
  for (int i = 0; i < 100 && !sampled(); ++i) absl::SleepFor(absl::Milliseconds(300));
  const std::string text = Metrics();
  for (const char* name :
       {"stagewright_planner_plans_total", "stagewright_planner_plan_seconds_bucket",
        "stagewright_planner_pool_queue_length", "stagewright_planner_pool_rejected_total",
        "stagewright_planner_jobs", "stagewright_planner_workers", "stagewright_planner_devices",
        "stagewright_planner_job_step_seconds", "stagewright_planner_job_predicted_step_seconds",
        "stagewright_planner_job_recent_step_seconds", "stagewright_planner_job_drift_ratio",
        "stagewright_planner_job_loss", "stagewright_planner_rpc_requests_total",
        "stagewright_planner_audit_failures_total"}) {
    const bool per_job = std::string(name).find("_job_") != std::string::npos;
    // No job has run: families without series are not written.
    EXPECT_THAT(text,
                per_job ? Not(HasSubstr(name)) : ::testing::Matcher<std::string>(HasSubstr(name)));
  }
  EXPECT_EQ(Metric("stagewright_planner_rpc_requests_total{code=\"OK\",method=\"Plan\"}"), 1);
  EXPECT_EQ(Metric("stagewright_planner_rpc_requests_total{code=\"NOT_FOUND\",method=\"Plan\"}"),
            1);
  EXPECT_EQ(Metric("stagewright_planner_rpc_requests_total{code=\"OK\",method=\"SubmitJob\"}"), 1);
  EXPECT_EQ(
      Metric("stagewright_planner_rpc_requests_total{code=\"NOT_FOUND\",method=\"ReplanJob\"}"), 1);
  EXPECT_EQ(
      Metric("stagewright_planner_plans_total{planner=\"unknown\",result=\"NOT_FOUND\",source="
             "\"call\"}"),
      1);
  EXPECT_EQ(Metric("stagewright_planner_rpc_seconds_count{method=\"Plan\"}"), 2);
  EXPECT_EQ(Metric("stagewright_planner_rpc_open{method=\"Plan\"}"), 0);
  EXPECT_EQ(Metric("stagewright_planner_plan_cache_total{result=\"miss\"}"), 2);
  EXPECT_EQ(Metric("stagewright_planner_job_events_total{kind=\"submitted\"}"), 1);
  EXPECT_GT(Metric("process_resident_memory_bytes"), 1e6);
  EXPECT_THAT(text, HasSubstr("stagewright_planner_build_info{version="));
  EXPECT_EQ(Metric("stagewright_planner_jobs{state=\"pending\"}"), 1);
  EXPECT_EQ(Metric("stagewright_planner_workers"), 0);
  EXPECT_EQ(Metric("stagewright_planner_pool_queue_length"), 0);
  EXPECT_EQ(Metric("stagewright_planner_devices{state=\"free\"}"), 0);
}

}  // namespace
}  // namespace stagewright
