#include "common/base/error_details.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace stagewright {
namespace {

absl::Status PassedOn() {
  RETURN_IF_ERROR(WithReason(
      WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(1500)), "QUEUE"));
  return absl::OkStatus();
}

TEST(ErrorDetails, GoWithTheErrorThatIsPassedOn) {
  const ErrorDetails details = DetailsOf(PassedOn());
  EXPECT_EQ(details.reason, "QUEUE");
  EXPECT_EQ(details.retry_after, absl::Milliseconds(1500));
  EXPECT_EQ(details.field, "");
  EXPECT_EQ(PassedOn().message(), "full");
}

TEST(ErrorDetails, NameFieldsAndResources) {
  const ErrorDetails details =
      DetailsOf(WithResource(WithField(absl::InvalidArgumentError("bad"), "spec.steps"), "jobs/7"));
  EXPECT_EQ(details.field, "spec.steps");
  EXPECT_EQ(details.resource, "jobs/7");
  EXPECT_FALSE(details.retry_after.has_value());
}

TEST(ErrorDetails, AFullDiskMayPassAndAMissingDirectoryDoesNot) {
  const absl::Status failed = absl::UnavailableError("a: it is full");
  EXPECT_TRUE(IsOfStorage(Annotate(WithSystemError(failed, ENOSPC), "device w")));
  EXPECT_FALSE(IsOfStorage(WithSystemError(failed, ENOTDIR)));
  EXPECT_FALSE(IsOfStorage(failed));
  EXPECT_FALSE(IsOfStorage(WithSystemError(absl::OkStatus(), ENOSPC)));
}

TEST(ErrorDetails, SuccessHasNone) {
  EXPECT_TRUE(WithField(absl::OkStatus(), "spec.steps").ok());
  EXPECT_EQ(DetailsOf(absl::OkStatus()).field, "");
}

}  // namespace
}  // namespace stagewright
