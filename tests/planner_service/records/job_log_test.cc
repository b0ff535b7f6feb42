#include "planner_service/records/job_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kNow = absl::FromUnixSeconds(1'764'000'000);

// A worker's lines of one message, each a second after the one before.
v1::LogLines Lines(const std::vector<std::string>& messages, int64_t from_second,
                   int64_t dropped = 0) {
  v1::LogLines lines;
  lines.set_generation(2);
  lines.set_dropped(dropped);
  for (const std::string& message : messages) {
    v1::JobLogLine* line = lines.add_lines();
    line->set_time_ns(from_second++ * 1'000'000'000);
    line->set_message(message);
    line->set_worker("somebody else");
    line->set_generation(77);
    line->set_position(5);
  }
  return lines;
}

std::vector<std::string> Messages(const v1::ListJobLogsResponse& log) {
  std::vector<std::string> messages;
  for (const v1::JobLogLine& line : log.lines()) messages.push_back(line.message());
  return messages;
}

int64_t Newest(const v1::ListJobLogsResponse& log) {
  int64_t newest = 0;
  for (const v1::JobLogLine& line : log.lines()) newest = std::max(newest, line.position());
  return newest;
}

TEST(JobLog, MergesWorkersByTimeAndSaysWhoseLinesTheyAre) {
  JobLog log;
  log.Add("w0", Lines({"1", "3"}, 10), kNow);
  log.Add("w1", Lines({"0", "2"}, 9), kNow);
  log.Add({absl::FromUnixSeconds(20), LogLevel::kWarning, "", "4", {{"job", "jobs/1"}}}, 3);
  const v1::ListJobLogsResponse all = log.ToProto();
  EXPECT_THAT(Messages(all), ElementsAre("0", "1", "2", "3", "4"));
  EXPECT_EQ(all.lines(0).worker(), "w1") << "and not whom it names";
  EXPECT_EQ(all.lines(0).generation(), 2);
  EXPECT_EQ(all.lines(4).worker(), "");
  EXPECT_EQ(all.lines(4).generation(), 3);
  EXPECT_EQ(all.lines(4).level(), v1::LOG_LEVEL_WARNING);
}

TEST(JobLog, GoesOnBehindAPositionAlsoWithLinesOfEarlierTimes) {
  JobLog log;
  log.Add("w0", Lines({"a", "b"}, 10), kNow);
  const int64_t seen = Newest(log.ToProto());
  EXPECT_THAT(Messages(log.ToProto(seen)), IsEmpty());
  log.Add("w1", Lines({"late"}, 1), kNow - absl::Hours(1));  // The clock was set back.
  EXPECT_THAT(Messages(log.ToProto(seen)), ElementsAre("late"));

  JobLog of_the_next_planner;
  of_the_next_planner.Add("w0", Lines({"c"}, 12), kNow + absl::Seconds(1));
  EXPECT_THAT(Messages(of_the_next_planner.ToProto(seen)), ElementsAre("c"));
}

v1::LogLines Numbered(const std::vector<std::string>& messages, int64_t first_number,
                      int64_t dropped = 0, int64_t numbering = 1) {
  v1::LogLines lines = Lines(messages, first_number, dropped);
  lines.set_first_number(first_number);
  lines.set_numbering(numbering);
  return lines;
}

TEST(JobLog, KnowsLinesThatComeAgainAndCountsThoseThatDoNotCome) {
  JobLog log;
  log.Add("w0", Numbered({"1", "2"}, 1), kNow);
  log.Add("w1", Numbered({"of another"}, 1), kNow);
  log.Add("w0", Numbered({"1", "2", "3"}, 1), kNow);  // Its stream broke.
  log.Add("w0", Numbered({"2", "3"}, 2), kNow);
  EXPECT_THAT(Messages(log.ToProto()), ElementsAre("1", "of another", "2", "3"));
  EXPECT_EQ(log.ToProto().dropped(), 0);
  log.Add("w0", Numbered({"7"}, 7, /*dropped=*/2), kNow);  // One of the three was lost on the way.
  EXPECT_EQ(log.ToProto().dropped(), 3);
  log.Add("w0", Numbered({"7"}, 7), kNow);
  EXPECT_EQ(log.ToProto().dropped(), 3);
  EXPECT_EQ(log.ToProto().lines_size(), 5);
}

TEST(JobLog, ANewNumberingBeginsAgain) {
  JobLog log;
  log.Add("w0", Numbered({"1", "2"}, 1), kNow);
  log.Add("w0", Numbered({"anew"}, 1, 0, /*numbering=*/2), kNow);  // Its worker forgot the first.
  v1::LogLines next = Numbered({"next attempt"}, 1, 0, /*numbering=*/2);
  next.set_generation(3);
  log.Add("w0", next, kNow);
  log.Add("w0", Numbered({"late"}, 3), kNow);  // A line of the attempt before.
  EXPECT_EQ(log.ToProto().lines_size(), 5);
  EXPECT_EQ(log.ToProto().dropped(), 0);
  for (const int64_t number : {std::numeric_limits<int64_t>::max(), int64_t{-1}}) {
    next.set_first_number(number);
    log.Add("w0", next, kNow);
  }
  EXPECT_EQ(log.ToProto().lines_size(), 7) << "numbers that cannot be are none";
  EXPECT_EQ(log.ToProto().dropped(), 0);
}

TEST(JobLog, KeepsTheNewestLinesAndCountsTheOthers) {
  JobLog log;
  for (size_t i = 0; i < JobLog::kMostLines + 5; ++i)
    log.Add("w0", Lines({absl::StrCat(i)}, static_cast<int64_t>(i), 1), kNow);
  v1::ListJobLogsResponse all = log.ToProto();
  EXPECT_EQ(all.lines_size(), static_cast<int>(JobLog::kMostLines));
  EXPECT_EQ(all.lines(0).message(), "5");
  EXPECT_EQ(all.dropped(), 5 + static_cast<int64_t>(JobLog::kMostLines) + 5);

  for (int i = 0; i < 2000; ++i) log.Add("w0", Lines({std::string(1000, 'x')}, 5000), kNow);
  all = log.ToProto();
  EXPECT_LE(all.ByteSizeLong(), JobLog::kMostBytes + 4096);
  EXPECT_GT(all.lines_size(), 200);

  log.Add("w0", Lines({}, 0, std::numeric_limits<int64_t>::max()), kNow);
  log.Add("w0", Lines({}, 0, std::numeric_limits<int64_t>::min()), kNow);
  EXPECT_GT(log.ToProto().dropped(), 0) << "whatever a worker says";
}

}  // namespace
}  // namespace stagewright
