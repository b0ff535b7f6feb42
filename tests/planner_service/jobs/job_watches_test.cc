#include "planner_service/jobs/job_watches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "planner_service/jobs/job_proto.h"
#include "tests/planner_service/jobs/small_spec.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;

Job JobOf(int64_t number) {
  Job job;
  job.number = number;
  SetSpec(testing::SmallSpec(), job);
  return job;
}

TEST(JobWatches, TellEachOfItsJobUntilItIsRemoved) {
  JobWatches watches;
  std::vector<std::string> first, second;
  const auto into = [](std::vector<std::string>& told) {
    return [&told](std::shared_ptr<const v1::Job> job) { told.push_back(job->message()); };
  };
  Job job = JobOf(1);
  job.message = "begun";
  const int64_t id = watches.Add(job, into(first));
  EXPECT_NE(watches.Add(JobOf(2), into(second)), id);
  EXPECT_THAT(first, ElementsAre("begun"));
  job.message = "changed";
  watches.Tell(job);
  watches.Remove(id);
  watches.Tell(job);
  EXPECT_THAT(first, ElementsAre("begun", "changed"));
  EXPECT_THAT(second, ElementsAre(""));
}

TEST(JobWatches, LeaveTheGraphOut) {
  JobWatches watches;
  std::shared_ptr<const v1::Job> shown;
  watches.Add(JobOf(1), [&shown](auto job) { shown = std::move(job); });
  ASSERT_NE(shown, nullptr);
  EXPECT_EQ(shown->name(), "jobs/1");
  EXPECT_EQ(shown->spec().graph().nodes_size(), 0);
}

}  // namespace
}  // namespace stagewright
