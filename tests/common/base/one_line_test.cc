#include "common/base/one_line.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(OneLineTest, KeepsWhatIsReadable) {
  EXPECT_TRUE(OneLine(absl::OkStatus()).ok());
  const absl::Status status = OneLine(absl::NotFoundError("a\n\tb \x7f \xc3\xa9 \xc2\x9bm"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(status.message()), "a??b ? \xc3\xa9 ?m");
  const std::string many(999, 'x');
  EXPECT_EQ(std::string(OneLine(absl::NotFoundError(many + "\xc3\xa9y")).message()), many + "...");
}

}  // namespace
}  // namespace stagewright
