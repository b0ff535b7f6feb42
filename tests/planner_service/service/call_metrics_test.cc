// Counting calls over real gRPC on loopback.
#include "planner_service/service/call_metrics.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/planner_service/service/server_fixture.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using CallMetricsTest = ServerTest;

TEST_F(CallMetricsTest, UnknownMethodsAreOne) {
  Start(WithMetrics());
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::ByteBuffer answer;
    grpc::Status status;
    const auto call = grpc::GenericStub(channel_).PrepareUnaryCall(
        &context, absl::StrCat("/stagewright.v1.JobService/MadeUp", i), grpc::ByteBuffer(), &queue);
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_THAT(Metrics(), Not(HasSubstr("MadeUp")));
  EXPECT_EQ(
      Metric("stagewright_planner_rpc_requests_total{code=\"UNIMPLEMENTED\",method=\"unknown\"}"),
      3);
}

}  // namespace
}  // namespace stagewright
