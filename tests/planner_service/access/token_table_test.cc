#include "planner_service/access/token_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(TokenTable, FindsTokensAndDigestsOfTokens) {
  // The digest is that of "0123456789abcdef".
  const auto table = TokenTable::Parse(
      "# who may what\n\n  plain-token-0123456\tviewer vera lab \r\n"
      "sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f operator olga\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->size(), 2u);
  const auto vera = table->Find("plain-token-0123456");
  ASSERT_TRUE(vera.has_value());
  EXPECT_EQ(vera->role, Role::kViewer);
  EXPECT_EQ(vera->user, "vera");
  EXPECT_EQ(vera->tenant, "lab");
  const auto olga = table->Find("0123456789abcdef");
  ASSERT_TRUE(olga.has_value());
  EXPECT_EQ(olga->role, Role::kOperator);
  EXPECT_FALSE(table->Find("plain-token-012345").has_value());
  EXPECT_FALSE(table->Find("").has_value());
  // Who has read the file cannot call with a digest.
  EXPECT_FALSE(
      table->Find("sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f")
          .has_value());
}

TEST(TokenTable, NamesTheLineAndNeverTheToken) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"secret-token-01234 viewer", "line 1: expected TOKEN ROLE USER [TENANT]"},
      {"secret-token-01234 viewer vera lab more", "line 1: expected TOKEN ROLE USER [TENANT]"},
      {"\nsecret-token-01234 Viewer vera", "line 2: the role \"Viewer\" is none of"},
      {"secret-token viewer vera", "line 1: the token has fewer than 16 characters"},
      {"sha256:secret viewer vera", "line 1: sha256: is not followed by 64"},
      {"secret-token-01234 viewer a\nsecret-token-01234 viewer b", "line 2: the token is given"},
  };
  for (const auto& [text, message] : kCases) {
    const absl::Status status = TokenTable::Parse(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret"))) << text;
  }
}

// A file that somebody has just emptied, to write it anew, is not one that lets nobody in.
TEST(TokenTable, HasTokens) {
  for (const char* text : {"", "\n", " \t\r\n\r\n", "# token-of-nobody viewer vera\n"}) {
    EXPECT_EQ(TokenTable::Parse(text).status(), absl::InvalidArgumentError("it has no tokens"))
        << text;
  }
}

}  // namespace
}  // namespace stagewright
