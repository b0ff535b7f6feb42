#include "planner_service/service/rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "common/base/error_details.h"
#include "stagewright/v1/error_details.pb.h"

namespace stagewright {
namespace {

v1::ErrorStatus DetailsIn(const grpc::Status& status) {
  v1::ErrorStatus details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

TEST(ToGrpc, KeepsCodeAndMessage) {
  const grpc::Status status = ToGrpc(absl::NotFoundError("no job"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no job");
  EXPECT_EQ(status.error_details(), "");
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
}

TEST(ToGrpc, DetailsAreThoseOfGoogleRpc) {
  absl::Status status = absl::ResourceExhaustedError("full");
  status = WithReason(WithRetryAfter(status, absl::Milliseconds(2500)), "PLANNING_QUEUE_FULL");
  status = WithResource(WithField(status, "spec.steps"), "jobs/7");
  const v1::ErrorStatus details = DetailsIn(ToGrpc(status));
  EXPECT_EQ(details.code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_EQ(details.message(), "full");
  ASSERT_EQ(details.details_size(), 4);
  v1::ErrorInfo info;
  v1::BadRequest request;
  v1::ResourceInfo resource;
  v1::RetryInfo retry;
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
  ASSERT_TRUE(info.ParseFromString(details.details(0).value()));
  EXPECT_EQ(info.reason(), "PLANNING_QUEUE_FULL");
  EXPECT_EQ(info.domain(), "stagewright");
  EXPECT_EQ(details.details(1).type_url(), "type.googleapis.com/google.rpc.BadRequest");
  ASSERT_TRUE(request.ParseFromString(details.details(1).value()));
  EXPECT_EQ(request.field_violations(0).field(), "spec.steps");
  EXPECT_EQ(details.details(2).type_url(), "type.googleapis.com/google.rpc.ResourceInfo");
  ASSERT_TRUE(resource.ParseFromString(details.details(2).value()));
  EXPECT_EQ(resource.resource_type(), "jobs");
  EXPECT_EQ(resource.resource_name(), "jobs/7");
  EXPECT_EQ(details.details(3).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  ASSERT_TRUE(retry.ParseFromString(details.details(3).value()));
  EXPECT_EQ(retry.retry_delay().seconds(), 2);
  EXPECT_EQ(retry.retry_delay().nanos(), 500'000'000);
}

TEST(ToGrpc, WhatIsUnavailableAlwaysSaysWhenToTryAgain) {
  for (const auto& [status, seconds] :
       {std::pair(absl::UnavailableError("shutting down"), 1),
        std::pair(WithRetryAfter(absl::UnavailableError("full"), absl::Seconds(5)), 5)}) {
    const v1::ErrorStatus details = DetailsIn(ToGrpc(status));
    ASSERT_EQ(details.details_size(), 1);
    v1::RetryInfo retry;
    EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
    ASSERT_TRUE(retry.ParseFromString(details.details(0).value()));
    EXPECT_EQ(retry.retry_delay().seconds(), seconds);
  }
}

TEST(OpenStreams, BeyondTheMostSayWhenToTryAgain) {
  OpenStreams streams(/*most_of_owner=*/2, /*most=*/3);
  const auto expect_full = [&](const std::string& owner) {
    const absl::Status full = streams.CheckRoom(owner);
    EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
    ASSERT_TRUE(DetailsOf(full).retry_after.has_value());
    EXPECT_GE(*DetailsOf(full).retry_after, absl::Seconds(1));
  };
  const int64_t first = streams.Add([] {}, "ann");
  streams.Add([] {}, "ann");
  EXPECT_EQ(streams.CheckRoom("ann"), absl::OkStatus());
  const int64_t third = streams.Add([] {}, "ann");
  expect_full("ann");
  EXPECT_EQ(streams.CheckRoom("bob"), absl::OkStatus());
  streams.Add([] {}, "bob");
  expect_full("bob");  // All of all.
  streams.Remove(first);
  streams.Remove(third);
  EXPECT_EQ(streams.CheckRoom("ann"), absl::OkStatus());
  EXPECT_EQ(streams.CheckRoom("bob"), absl::OkStatus());
}

TEST(OpenStreams, WorkersAreCountedByThemselves) {
  OpenStreams streams(/*most_of_owner=*/1, /*most=*/2);
  for (int i = 0; i < 3; ++i) streams.Add([] {}, "ann");
  const int64_t first = streams.Add([] {}, OpenStreams::kWorkers);
  streams.Add([] {}, OpenStreams::kWorkers);
  EXPECT_EQ(streams.CheckRoomForWorker(), absl::OkStatus());
  streams.Add([] {}, OpenStreams::kWorkers);
  const absl::Status full = streams.CheckRoomForWorker();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_TRUE(DetailsOf(full).retry_after.has_value());
  streams.Remove(first);
  EXPECT_EQ(streams.CheckRoomForWorker(), absl::OkStatus());
}

}  // namespace
}  // namespace stagewright
