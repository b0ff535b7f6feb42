#include "clients/cli/exit_code.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"

namespace stagewright::cli {
namespace {

int CodeOf(const absl::Status& status) {
  ::testing::internal::CaptureStderr();
  const int code = Report(status);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            absl::StrCat("stagewright: ", status.message(), "\n"));
  return code;
}

TEST(ExitCodeTest, OnlyAPlannerOrAStoreThatDoesNotAnswerIsUnreachable) {
  EXPECT_EQ(CodeOf(absl::UnavailableError("no planner answers")), kUnreachable);
  EXPECT_EQ(CodeOf(absl::NotFoundError("jobs/7: no such job")), kError);
  const absl::Status full = absl::UnavailableError("model: cannot write: No space left on device");
  EXPECT_EQ(CodeOf(WithSystemError(full, ENOSPC)), kError);
}

}  // namespace
}  // namespace stagewright::cli
