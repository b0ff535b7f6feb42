#include "planner_service/access/jwt_text.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(JwtText, TakesBase64UrlInOneFormOnly) {
  EXPECT_EQ(DecodeBase64Url("_-8"), "\xff\xef");
  EXPECT_EQ(DecodeBase64Url(""), "");
  for (const char* text : {"_-8=", "/+8", "_-8\n", " _-8", "_-9", "A", "_-8.", "\xff"})
    EXPECT_FALSE(DecodeBase64Url(text).has_value()) << text;
}

TEST(JwtText, TakesNoFieldTwice) {
  EXPECT_TRUE(ParseUniqueObject(R"({"a": 1, "b": {"a": [{"a": 1}, {"a": 2}]}})", "it").ok());
  for (const char* text : {R"({"a": 1, "a": 1})", R"({"b": [{"a": 1, "\u0061": 2}]})", "[1]", "7",
                           "{", "", "{\"a\": \"\xff\"}", R"({"a": 1} x)"}) {
    const absl::Status status = ParseUniqueObject(text, "it").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(status.message().substr(0, 2), "it") << status;
  }
  EXPECT_FALSE(ParseUniqueObject(std::string(100, '['), "it").ok());
}

TEST(JwtText, KnowsTextsFromOtherValues) {
  const nlohmann::json object = {{"text", "t"}, {"number", 1}};
  EXPECT_EQ(TextOf(object, "text"), "t");
  EXPECT_FALSE(TextOf(object, "number").has_value());
  EXPECT_FALSE(TextOf(object, "absent").has_value());
}

}  // namespace
}  // namespace stagewright
