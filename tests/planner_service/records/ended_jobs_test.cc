#include "planner_service/records/ended_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using Group = EndedJobs::Group;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

EndedJob Of(int64_t number, const std::string& owner, JobState state, int64_t end) {
  EndedJob job;
  job.number = number;
  job.owner = owner;
  job.state = state;
  job.end_time = absl::FromUnixSeconds(end);
  return job;
}

class EndedJobsTest : public ::testing::Test {
 protected:
  EndedJobsTest() {
    jobs_.Add(Of(1, "ann", JobState::kSucceeded, 50));
    jobs_.Add(Of(2, "bob", JobState::kSucceeded, 20));
    jobs_.Add(Of(4, "ann", JobState::kFailed, 40));
    jobs_.Add(Of(7, "bob", JobState::kFailed, 30));
  }
  std::vector<int64_t> Newest(int64_t before, const std::function<bool(const Group&)>& in,
                              size_t most = 9) const {
    std::vector<int64_t> found;
    jobs_.VisitNewest(before, in, [&](const EndedJob& job) {
      found.push_back(job.number);
      return found.size() < most;
    });
    return found;
  }

  EndedJobs jobs_;
};

TEST_F(EndedJobsTest, AreVisitedNewestFirstByGroup) {
  const auto any = [](const Group&) { return true; };
  EXPECT_THAT(Newest(kAll, any), ElementsAre(7, 4, 2, 1));
  EXPECT_THAT(Newest(7, any, 2), ElementsAre(4, 2));
  EXPECT_THAT(Newest(1, any), IsEmpty());
  const auto of_ann = [](const Group& group) { return group.owner == "ann"; };
  EXPECT_THAT(Newest(kAll, of_ann), ElementsAre(4, 1));
  const auto failed = [](const Group& group) { return group.state == JobState::kFailed; };
  EXPECT_THAT(Newest(5, failed), ElementsAre(4));
}

TEST_F(EndedJobsTest, TheOneThatEndedFirstIsTheOldest) {
  for (const int64_t oldest : {2, 7, 4, 1}) {
    ASSERT_NE(jobs_.Oldest(), nullptr);
    EXPECT_EQ(jobs_.Oldest()->number, oldest);
    jobs_.Erase(oldest);
    EXPECT_EQ(jobs_.Find(oldest), nullptr);
  }
  EXPECT_EQ(jobs_.Oldest(), nullptr);
  EXPECT_EQ(jobs_.size(), 0u);
  EXPECT_THAT(jobs_.CountByState(), IsEmpty());
}

TEST_F(EndedJobsTest, AreCountedByState) {
  EXPECT_THAT(jobs_.CountByState(),
              ElementsAre(Pair(JobState::kSucceeded, 2), Pair(JobState::kFailed, 2)));
  jobs_.Add(Of(4, "ann", JobState::kSucceeded, 60));
  jobs_.Erase(9);
  EXPECT_THAT(jobs_.CountByState(),
              ElementsAre(Pair(JobState::kSucceeded, 3), Pair(JobState::kFailed, 1)));
  EXPECT_EQ(jobs_.Find(4)->end_time, absl::FromUnixSeconds(60));
}

}  // namespace
}  // namespace stagewright
