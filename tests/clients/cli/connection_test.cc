#include "clients/cli/connection.h"

#include <gtest/gtest.h>

#include "stagewright/v1/error_details.pb.h"

namespace stagewright::cli {
namespace {

const Connection& Nowhere() {
  static const Connection* const connection = new Connection("127.0.0.1:1", ChannelSecurity());
  return *connection;
}

grpc::Status Refused(grpc::StatusCode code, const std::string& message, double seconds) {
  v1::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(static_cast<int64_t>(seconds));
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>((seconds - static_cast<double>(static_cast<int64_t>(seconds))) * 1e9));
  v1::ErrorStatus told;
  told.add_details()->set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  told.mutable_details(0)->set_value(retry.SerializeAsString());
  return {code, message, told.SerializeAsString()};
}

TEST(ConnectionTest, APlannerThatIsUnavailableSpeaksForItself) {
  const absl::Status status =
      Nowhere().Translate(Refused(grpc::StatusCode::UNAVAILABLE, "it is shutting down", 1));
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "it is shutting down (retry in 1 s)");
}

TEST(ConnectionTest, OneThatIsNotReachedIsNamed) {
  const absl::Status status =
      Nowhere().Translate({grpc::StatusCode::UNAVAILABLE, "connection refused"});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "no planner answers at 127.0.0.1:1: connection refused");
}

// Such as one that is stopped: connections to it are made, and nothing comes back.
TEST(ConnectionTest, OneThatSaysNothingIsNamed) {
  const absl::Status status =
      Nowhere().Translate({grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "no planner answers at 127.0.0.1:1 in time");
}

TEST(ConnectionTest, APlannerThatHadNoTimeSpeaksForItself) {
  for (const grpc::Status& said :
       {grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                     "there was no time to judge the strategy"),
        Refused(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded", 1)})
    EXPECT_TRUE(absl::IsDeadlineExceeded(Nowhere().Translate(said))) << said.error_message();
}

TEST(ConnectionTest, ErrorsSayWhenACallMaySucceed) {
  EXPECT_EQ(Nowhere()
                .Translate(Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full", 2.5))
                .message(),
            "the queue is full (retry in 2.5 s)");
  EXPECT_EQ(Nowhere().Translate({grpc::StatusCode::NOT_FOUND, "no job"}).message(), "no job");
}

}  // namespace
}  // namespace stagewright::cli
