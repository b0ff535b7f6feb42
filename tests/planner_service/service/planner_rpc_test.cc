#include "planner_service/service/planner_rpc.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>

#include "absl/strings/str_cat.h"
#include "stagewright/v1/profile.grpc.pb.h"
#include "tests/planner_service/service/server_fixture.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

class PlannerRpcTest : public ServerTest {
 protected:
  // A Plan call whose request is these bytes.
  grpc::Status PlanOf(const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/stagewright.v1.PlannerService/Plan", {}, &request, &response,
                   [&](grpc::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }

  // Has one operator measured on devices of the kind.
  void Measure(const std::string& kind) {
    v1::ImportProfilesRequest request;
    v1::DeviceProfile* profile = request.add_profiles();
    profile->set_device_kind(kind);
    profile->set_software("torch");
    v1::MeasuredOperator* measured = profile->add_operators();
    measured->set_signature("aten.relu.default(float32[s,8])");
    measured->set_measured_on("2026-11-22");
    v1::OperatorMeasurement* sample = measured->add_samples();
    sample->set_samples(1);
    sample->set_forward_ns(9);
    grpc::ClientContext context;
    v1::ImportProfilesResponse response;
    const auto profiles = v1::ProfileService::NewStub(channel_);
    const grpc::Status status = profiles->ImportProfiles(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  v1::PlanResponse Answer() {
    v1::PlanResponse response;
    const grpc::Status status = Plan(SmallRequest(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
};

TEST_F(PlannerRpcTest, AKeptAnswerNamesTheMeasurementsOfToday) {
  Start();
  const v1::PlanResponse before = Answer();
  EXPECT_TRUE(Answer().cached());
  ASSERT_EQ(before.basis().profiles_size(), 1);
  EXPECT_EQ(before.basis().profiles(0).digest(), 0u);
  Measure(before.basis().profiles(0).device_kind());
  const v1::PlanResponse after = Answer();
  ASSERT_EQ(after.basis().profiles_size(), 1);
  EXPECT_NE(after.basis().profiles(0).digest(), 0u);
  EXPECT_EQ(after.basis().profiles(0).measured_on(), "2026-11-22");
  // And that one is kept.
  v1::PlanResponse again = Answer();
  EXPECT_TRUE(again.cached());
  again.set_cached(after.cached());
  EXPECT_EQ(again.SerializeAsString(), after.SerializeAsString());
}

TEST_F(PlannerRpcTest, AWorkerThatComesChangesNoAnswer) {
  Start();
  const v1::PlanResponse before = Answer();
  grpc::ClientContext context;
  const auto stream = workers_->Connect(&context);
  v1::ConnectRequest connect;
  v1::Register* message = connect.mutable_register_();
  message->set_worker("w");
  v1::DeviceKind* kind = message->add_kinds();
  kind->set_name("cpu");
  kind->set_flops_per_second(1e9);
  kind->set_memory_bytes_per_second(1e10);
  v1::Device* device = message->add_devices();
  device->set_name("cpu0");
  device->set_memory_bytes(int64_t{1} << 30);
  v1::ConnectResponse welcome;
  ASSERT_TRUE(stream->Write(connect) && stream->Read(&welcome));
  // A question that is encoded otherwise is searched anew: what it is answered is as fresh as can
  // be.
  v1::PlanRequest other = SmallRequest();
  other.GetReflection()->MutableUnknownFields(&other)->AddVarint(999, 1);
  v1::PlanResponse fresh, kept = Answer();
  ASSERT_TRUE(Plan(other, &fresh).ok());
  EXPECT_TRUE(kept.cached());
  EXPECT_FALSE(fresh.cached());
  kept.set_cached(false);
  kept.set_search_seconds(fresh.search_seconds());
  EXPECT_EQ(kept.SerializeAsString(), fresh.SerializeAsString());
  stream->WritesDone();
  context.TryCancel();
  stream->Finish();
}

TEST_F(PlannerRpcTest, WhatIsNoRequestOrBreaksALimitIsRefusedEachTime) {
  Start();
  v1::PlanRequest request = SmallRequest();
  request.set_planner(std::string(1000, 'x'));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(PlanOf("\xff\xff").error_code(), grpc::StatusCode::INTERNAL);
    const grpc::Status status = PlanOf(request.SerializeAsString());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("planner: it has 1000 bytes"));
  }
  EXPECT_EQ(PlanOf("").error_code(), grpc::StatusCode::INVALID_ARGUMENT);  // Without a graph.
}

TEST_F(PlannerRpcTest, WhoMayNotAskIsRefusedThoughTheAnswerIsKept) {
  const std::string file = ::testing::TempDir() + "/planner_rpc_tokens";
  std::ofstream(file) << "submitters-token-01 submitter sam\nviewers-token-00001 viewer vera\n";
  ServerOptions options = WithMetrics();
  options.door.token_file = file;
  Start(options);
  const auto ask = [this](const std::string& token) {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    v1::PlanResponse response;
    return planner_->Plan(&context, SmallRequest(), &response);
  };
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(ask("submitters-token-01").ok());
  EXPECT_EQ(ask("").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ask("somebodys-token-001").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ask("viewers-token-00001").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Metric("stagewright_planner_plan_cache_total{result=\"hit\"}"), 1);
  EXPECT_EQ(Metric("stagewright_planner_rpc_requests_total{code=\"OK\",method=\"Plan\"}"), 2);
}

}  // namespace
}  // namespace stagewright
