#include "planner_service/records/told_of.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(ToldOf, WhatMayPassSaysWhenToTryAgain) {
  for (const absl::Status& trouble :
       {absl::UnavailableError("etcd"), absl::ResourceExhaustedError("disk full"),
        absl::DeadlineExceededError("etcd")}) {
    EXPECT_EQ(ToldOf(trouble).code(), trouble.code());
    EXPECT_EQ(ToldOf(trouble).message(), trouble.message());
    EXPECT_TRUE(DetailsOf(ToldOf(trouble)).retry_after.has_value()) << trouble;
    EXPECT_EQ(ToldOfRead(trouble), ToldOf(trouble));
  }
}

TEST(ToldOf, AnotherPlannersStoreIsNoFaultOfTheRequest) {
  const absl::Status told = ToldOf(absl::FailedPreconditionError("led by another"));
  EXPECT_TRUE(absl::IsUnavailable(told));
  EXPECT_TRUE(DetailsOf(told).retry_after.has_value());
}

TEST(ToldOf, AFileThatCannotBeReadIsNoPlannerThatDoesNotAnswer) {
  const absl::Status damaged = absl::FailedPreconditionError("file is not a database");
  EXPECT_EQ(ToldOfRead(damaged), damaged);
}

TEST(ToldOf, WhatDoesNotPassSaysNothing) {
  EXPECT_EQ(ToldOf(absl::OkStatus()), absl::OkStatus());
  const absl::Status damaged = absl::DataLossError("damaged");
  EXPECT_EQ(ToldOf(damaged), damaged);
}

}  // namespace
}  // namespace stagewright
