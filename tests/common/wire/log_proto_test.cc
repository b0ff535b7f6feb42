#include "common/wire/log_proto.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "common/wire/limits.h"

namespace stagewright {
namespace {

LogLine LineOf(std::string message, std::vector<LogField> fields) {
  return {absl::FromUnixMillis(1'764'000'000'123), LogLevel::kError, "any", std::move(message),
          std::move(fields)};
}

size_t TextBytes(const v1::JobLogLine& line) {
  size_t bytes = line.message().size();
  for (const v1::LogField& field : line.fields())
    bytes += field.key().size() + field.value().size();
  return bytes;
}

TEST(LogProto, ALineComesBackAsItsProgramWroteIt) {
  v1::JobLogLine line = ToProto(
      LineOf("job failed",
             {{"job", "jobs/7"}, {"generation", 3}, {"step", 9}, {"why", "a\nb"}, {"x", ""}}));
  EXPECT_EQ(line.fields_size(), 2);
  line.set_generation(3);
  line.set_worker("w0");
  EXPECT_EQ(FormatLine(FromProto(line), LogFormat::kText),
            "2025-11-24T16:00:00.123Z error stagewright-worker: job failed worker=w0 generation=3 "
            "step=9 why=a\\nb\n");
  line.clear_worker();  // What the planner logs may name one.
  EXPECT_EQ(FormatLine(FromProto(line), LogFormat::kJson),
            "{\"time\":\"2025-11-24T16:00:00.123Z\",\"level\":\"error\",\"program\":"
            "\"stagewright-planner\",\"message\":\"job failed\",\"generation\":3,\"step\":9,"
            "\"why\":\"a\\nb\"}\n");
}

TEST(LogProto, WhatALineHoldsIsTakenByThePlanner) {
  // A terminal's commands, of one byte and of two, what is no UTF-8, and far too much.
  const v1::JobLogLine odd =
      ToProto(LineOf("\x1b[31m \xc2\x9b \xff\xfe k\xc3\xb6ln", {{"why", std::string(1, '\0')}}));
  EXPECT_EQ(odd.message(), "?[31m ? ?? k\xc3\xb6ln");
  EXPECT_EQ(odd.fields(0).value(), "?");
  EXPECT_TRUE(CheckLimits(odd).ok());

  std::string umlauts;
  for (int i = 0; i < 2000; ++i) umlauts += "\xc3\xb6";
  for (const std::string& text : {umlauts, "x" + umlauts, std::string(5000, '\n')}) {
    const v1::JobLogLine first = ToProto(LineOf(text, {{"why", text}}));
    EXPECT_LE(TextBytes(first), kMostLineBytes);
    EXPECT_EQ(first.message().substr(first.message().size() - 3), "...");
    EXPECT_TRUE(CheckLimits(first).ok());
    v1::JobLogLine read;
    EXPECT_TRUE(read.ParseFromString(first.SerializeAsString())) << "UTF-8";
    const v1::JobLogLine second = ToProto(LineOf("short", {{"why", text}, {"step", 5}}));
    EXPECT_LE(TextBytes(second), kMostLineBytes);
    EXPECT_EQ(second.fields(0).value().substr(0, 100), text.substr(0, 100));
  }
  const v1::JobLogLine many = ToProto(LineOf("m", std::vector<LogField>(1000, LogField("k", 1))));
  EXPECT_EQ(many.fields_size(), kMostLineFields);
  EXPECT_TRUE(CheckLimits(many).ok());
}

TEST(LogProto, LevelsThatAreNotKnownAreInformation) {
  v1::JobLogLine line;
  EXPECT_EQ(FromProto(line).level, LogLevel::kInfo);
  line.set_level(static_cast<v1::LogLevel>(77));
  EXPECT_EQ(FromProto(line).level, LogLevel::kInfo);
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    EXPECT_EQ(FromProto(ToProto({absl::Now(), level, "", "m", {}})).level, level);
  }
}

}  // namespace
}  // namespace stagewright
