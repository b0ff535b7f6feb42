#include "common/base/json_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string ParseError(const std::string& text) {
  const auto json = ParseJson(text, "f.json");
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(json.status().message());
}

TEST(JsonObjectTest, ErrorsNameLineAndColumn) {
  EXPECT_EQ(ParseError("{\n  \"a\": ,\n}"), "f.json, line 2, column 8: not JSON from here on");
  EXPECT_EQ(ParseError("{\n"), "f.json, line 2, column 1: not JSON: the text ends too early");
  EXPECT_EQ(ParseError("[1, \"\xed\xa0\x80\"]"), "f.json, line 1, column 6: not UTF-8");
  EXPECT_THAT(ParseError("[1e999]"), HasSubstr("f.json is not JSON: number overflow"));
}

TEST(JsonObjectTest, SizesAreBounded) {
  EXPECT_THAT(ParseError(std::string(100, '[') + std::string(100, ']')),
              HasSubstr("column 65: nested deeper than 64 levels"));
  EXPECT_TRUE(ParseJson(std::string(64, '[') + std::string(64, ']'), "f").ok());
  // Brackets in texts do not nest.
  EXPECT_TRUE(ParseJson("[\"" + std::string(100, '[') + "\\\"[[\"]", "f").ok());
  EXPECT_THAT(ParseError("[" + std::string(9'000'000, ',') + "]"),
              HasSubstr("more than 8000000 values"));
  EXPECT_THAT(ParseError(std::string((size_t{64} << 20) + 1, ' ')), HasSubstr("64 MiB"));
}

TEST(JsonObjectTest, Utf8) {
  for (const char* good : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    EXPECT_EQ(FindInvalidUtf8(good), std::string_view::npos) << good;
  }
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xe2\x82", "\xe2\x28\xa1", "\xff"}) {
    EXPECT_EQ(FindInvalidUtf8(std::string("ab") + bad), 2u) << bad;
  }
}

TEST(JsonObjectTest, ReadsFieldsAndKeepsTheFirstError) {
  const Json json = {{"text", "t"},  {"real", 1.5},    {"big", 16e9},        {"count", 7},
                     {"flag", true}, {"list", {1, 2}}, {"child", {{"x", 1}}}};
  absl::Status status;
  JsonObject object(json, "top", status);
  EXPECT_EQ(object.Text("text"), "t");
  EXPECT_EQ(object.Real("real"), 1.5);
  EXPECT_EQ(object.Integer("big"), 16'000'000'000);
  EXPECT_EQ(object.Count("count"), 7);
  EXPECT_TRUE(object.Flag("flag", false));
  EXPECT_TRUE(object.Flag("absent", true));
  EXPECT_EQ(object.Array("list").size(), 2u);
  EXPECT_EQ(object.Array("absent", /*optional=*/true).size(), 0u);
  EXPECT_EQ(object.Child("child")["x"], 1);
  const int64_t fallback = 9;
  EXPECT_EQ(object.Integer("absent", &fallback), 9);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(object.Integer("real"), 0);
  EXPECT_EQ(object.Integer("missing"), 0);
  EXPECT_EQ(std::string(status.message()), "top.real is not an integer");
}

TEST(JsonObjectTest, UnknownFieldsAreErrorsWhereTheKnownAreListed) {
  absl::Status status;
  const Json json = {{"known", 1}, {"knwon", 2}};
  JsonObject any(json, "", status);
  EXPECT_TRUE(status.ok());
  JsonObject strict(json, "", status, {"known", "other"});
  EXPECT_EQ(std::string(status.message()), "knwon is not a known field (known, other)");
}

}  // namespace
}  // namespace stagewright
