#include "worker_daemon/daemon/logs/log_tails.h"

#include <gtest/gtest.h>

#include <string>

#include "common/wire/limits.h"
#include "common/wire/log_proto.h"

namespace stagewright {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'764'000'000);

LogLine Line(const std::string& message, const std::string& job = "jobs/1",
             int64_t generation = 1) {
  return {kNow, LogLevel::kInfo, "", message, {{"job", job}, {"generation", generation}}};
}

TEST(LogTails, KeepsWhatIsAboutRuns) {
  LogTails tails;
  tails.Add({kNow, LogLevel::kInfo, "", "of no job", {{"device", "cpu0"}}}, kNow);
  tails.Add({kNow, LogLevel::kInfo, "", "of no run", {{"job", "jobs/1"}}}, kNow);
  EXPECT_EQ(tails.due(), absl::InfiniteFuture());
  tails.Add(Line("first"), kNow);
  tails.Add(Line("second"), kNow);
  EXPECT_TRUE(tails.Has("jobs/1", 1));
  EXPECT_FALSE(tails.Has("jobs/1", 2));
  ASSERT_LE(tails.due(), kNow);
  const v1::LogLines lines = tails.TakeDue(kNow).log_lines();
  EXPECT_EQ(lines.job(), "jobs/1");
  EXPECT_EQ(lines.generation(), 1);
  ASSERT_EQ(lines.lines_size(), 2);
  EXPECT_EQ(lines.lines(1).message(), "second");
  EXPECT_EQ(lines.dropped(), 0);
  EXPECT_EQ(tails.due(), absl::InfiniteFuture());
}

TEST(LogTails, TellsOfARunOnceASecondUnlessItEnds) {
  LogTails tails;
  tails.Add(Line("first"), kNow);
  tails.TakeDue(kNow);
  tails.Add(Line("second"), kNow);
  tails.Add(Line("of another run", "jobs/2"), kNow);
  ASSERT_LE(tails.due(), kNow);
  EXPECT_EQ(tails.TakeDue(kNow).log_lines().job(), "jobs/2");
  EXPECT_EQ(tails.due(), kNow + LogTails::kEvery);
  EXPECT_EQ(tails.Take("jobs/1", 1, kNow).log_lines().lines(0).message(), "second");
  EXPECT_EQ(tails.due(), absl::InfiniteFuture());
}

TEST(LogTails, CountsWhatIsTooMuch) {
  LogTails tails;
  for (int i = 0; i < LogTails::kMostLines + 44; ++i) tails.Add(Line(absl::StrCat(i)), kNow);
  const v1::ConnectRequest many = tails.TakeDue(kNow);
  EXPECT_EQ(many.log_lines().lines_size(), LogTails::kMostLines);
  EXPECT_EQ(many.log_lines().lines(0).message(), "44");
  EXPECT_EQ(many.log_lines().dropped(), 44);
  EXPECT_TRUE(CheckLimits(many).ok());

  const int sent = 1000;
  for (int i = 0; i < sent; ++i) tails.Add(Line(std::string(100'000, 'x')), kNow);
  const v1::ConnectRequest large = tails.Take("jobs/1", 1, kNow);
  const int kept = large.log_lines().lines_size();
  EXPECT_LE(large.log_lines().ByteSizeLong(), LogTails::kMostBytes + 1024);
  EXPECT_GT(kept, 50);
  EXPECT_EQ(large.log_lines().dropped(), sent - kept);
  EXPECT_TRUE(CheckLimits(large).ok());
  tails.Add(Line("afterwards"), kNow);
  EXPECT_EQ(tails.Take("jobs/1", 1, kNow).log_lines().dropped(), 0) << "those were told";
}

TEST(LogTails, TellsAgainWhatItKeepsUnderItsNumbers) {
  LogTails tails;
  tails.Add(Line("1"), kNow);
  tails.Add(Line("2"), kNow);
  const v1::LogLines first = tails.TakeDue(kNow).log_lines();
  EXPECT_EQ(first.first_number(), 1);
  EXPECT_EQ(first.numbering(), absl::ToUnixNanos(kNow));
  tails.Add(Line("3"), kNow);
  const v1::LogLines second = tails.Take("jobs/1", 1, kNow).log_lines();
  EXPECT_EQ(second.first_number(), 3);
  ASSERT_EQ(second.lines_size(), 1);
  EXPECT_FALSE(tails.Has("jobs/1", 1));

  tails.TellAgain();
  tails.Add(Line("4"), kNow);
  const v1::LogLines again = tails.Take("jobs/1", 1, kNow).log_lines();
  EXPECT_EQ(again.first_number(), 1);
  EXPECT_EQ(again.numbering(), first.numbering());
  ASSERT_EQ(again.lines_size(), 4);
  EXPECT_EQ(again.lines(3).message(), "4");
  EXPECT_EQ(again.dropped(), 0);

  // What was told makes room before anything is lost.
  for (int i = 0; i < LogTails::kMostLines + 3; ++i) tails.Add(Line("more"), kNow);
  const v1::LogLines more = tails.Take("jobs/1", 1, kNow).log_lines();
  EXPECT_EQ(more.first_number(), 8);
  EXPECT_EQ(more.lines_size(), LogTails::kMostLines);
  EXPECT_EQ(more.dropped(), 3);
}

TEST(LogTails, AreNotMoreThanAWorkerHasJobs) {
  LogTails tails;
  const auto taken = [&] {
    size_t jobs = 0;
    for (; tails.due() <= kNow; ++jobs) tails.TakeDue(kNow);
    return jobs;
  };
  for (int i = 1; i <= 1000; ++i) tails.Add(Line("m", absl::StrCat("jobs/", i)), kNow);
  EXPECT_EQ(taken(), LogTails::kMostJobs);
  tails.Add(Line("m", "jobs/2000"), kNow + LogTails::kEvery);
  EXPECT_TRUE(tails.Has("jobs/2000", 1)) << "those that were told make room";
}

}  // namespace
}  // namespace stagewright
