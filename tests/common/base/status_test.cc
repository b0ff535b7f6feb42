#include "common/base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace stagewright {
namespace {

absl::StatusOr<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError(absl::StrCat(value, " is odd"));
  return std::make_unique<int>(value / 2);
}

absl::StatusOr<int> Quarter(int value) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> half, Half(value));
  ASSIGN_OR_RETURN(auto quarter, Half(*half));
  RETURN_IF_ERROR(absl::OkStatus());
  return *quarter;
}

TEST(Status, MacrosPassValuesAndErrors) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
}

TEST(Status, AnnotateKeepsTheCode) {
  const absl::Status status = Annotate(Quarter(5).status(), "input");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "input: 5 is odd");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "input").ok());
}

}  // namespace
}  // namespace stagewright
