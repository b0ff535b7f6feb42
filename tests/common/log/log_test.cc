#include "common/log/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace stagewright {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

LogLine LineOf(std::string message, std::vector<LogField> fields) {
  return {absl::FromUnixMillis(1'764'000'000'123), LogLevel::kWarning, "stagewright-planner",
          std::move(message), std::move(fields)};
}

TEST(Log, TextHasTimeLevelMessageAndKeys) {
  EXPECT_EQ(FormatLine(LineOf("worker lost", {{"job", "jobs/7"}, {"generation", 3}, {"why", ""}}),
                       LogFormat::kText),
            "2025-11-24T16:00:00.123Z warning stagewright-planner: worker lost job=jobs/7 "
            "generation=3\n");
}

TEST(Log, TextQuotesAndEscapesWhatStrangersWrote) {
  const std::string line = FormatLine(
      LineOf("line\nbreak", {{"name", "a \"b\"\x1b[31m"}, {"plain", "x"}}), LogFormat::kText);
  EXPECT_THAT(line, HasSubstr("line\\nbreak name=\"a \\\"b\\\"\\x1b[31m\" plain=x\n"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(Log, WritesOutWhatTerminalsObey) {
  const LogLine line = LineOf("k\xc3\xb6ln \x7f", {{"name",
                                                    "\xc2\x9b"
                                                    "31m"}});
  EXPECT_THAT(FormatLine(line, LogFormat::kText),
              HasSubstr("k\xc3\xb6ln \\x7f name=\\xc2\\x9b31m\n"));
  const std::string json = FormatLine(line, LogFormat::kJson);
  EXPECT_THAT(json, HasSubstr("\\u009b31m"));
  EXPECT_EQ(nlohmann::json::parse(json)["message"], "k\xc3\xb6ln \x7f");
}

TEST(Log, JsonHasNumbersAsNumbersAndTextsAsTexts) {
  const std::string line =
      FormatLine(LineOf("worker \"lost\"\n", {{"job", "jobs/7"},
                                              {"step", int64_t{1} << 60},
                                              {"loss", std::numeric_limits<double>::quiet_NaN()},
                                              {"number", "12"}}),
                 LogFormat::kJson);
  EXPECT_THAT(line, EndsWith("}\n"));
  const nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], "2025-11-24T16:00:00.123Z");
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["program"], "stagewright-planner");
  EXPECT_EQ(json["message"], "worker \"lost\"\n");
  EXPECT_EQ(json["job"], "jobs/7");
  EXPECT_EQ(json["step"], int64_t{1} << 60);
  EXPECT_EQ(json["loss"], "nan");
  EXPECT_EQ(json["number"], "12");
}

TEST(Log, BytesThatAreNoTextStillMakeALine) {
  const std::string line = FormatLine(LineOf("bad \xff byte", {}), LogFormat::kJson);
  EXPECT_TRUE(nlohmann::json::accept(line)) << line;
}

TEST(Log, LongTextsAreCut) {
  const std::string line = FormatLine(
      LineOf(std::string(5000, 'm'), {{"key", std::string(5000, 'v')}}), LogFormat::kText);
  EXPECT_LT(line.size(), 2200u);
  EXPECT_THAT(line, HasSubstr("m... key=v"));
}

TEST(Log, WritesOnlyWhatIsImportantEnough) {
  SetUpLog({"test", LogFormat::kText, LogLevel::kWarning});
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "quiet");
  Log(LogLevel::kError, "loud", {{"job", "jobs/1"}});
  const std::string written = ::testing::internal::GetCapturedStderr();
  SetUpLog({});
  EXPECT_THAT(written, Not(HasSubstr("quiet")));
  EXPECT_THAT(written, EndsWith(" error test: loud job=jobs/1\n"));
}

TEST(Log, LinesOfSeveralThreadsDoNotMix) {
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int n = 0; n < 200; ++n) Log(LogLevel::kInfo, "a line", {{"key", "value"}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines =
      absl::StrSplit(::testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty());
  EXPECT_EQ(lines.size(), 800u);
  for (const std::string& line : lines) EXPECT_THAT(line, EndsWith("Z info a line key=value"));
}

TEST(Log, ATapSeesWhatIsWrittenUntilItIsGone) {
  std::vector<std::string> seen;
  {
    const LogTap tap([&](const LogLine& line) { seen.push_back(line.message); });
    ::testing::internal::CaptureStderr();
    Log(LogLevel::kDebug, "below the level");
    Log(LogLevel::kInfo, "seen", {{"job", "jobs/7"}});
    ::testing::internal::GetCapturedStderr();
  }
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "too late");
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(seen, std::vector<std::string>{"seen"});
}

}  // namespace
}  // namespace stagewright
