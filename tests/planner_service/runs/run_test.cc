#include "planner_service/runs/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

Job ThreeDevices() {
  Job job;
  job.devices = {"a/cpu0", "b/cpu0", "a/cpu1"};
  job.request = std::make_shared<const JobRequest>();
  return job;
}

class RunTest : public ::testing::Test {
 protected:
  stagewright::Run run_{ThreeDevices(), absl::Now()};
};

TEST_F(RunTest, KnowsTheDevicesOfEachWorker) {
  EXPECT_THAT(run_.workers(), ElementsAre(Pair("a", ElementsAre(0, 2)), Pair("b", ElementsAre(1))));
  EXPECT_TRUE(run_.HasWorker("b"));
  EXPECT_FALSE(run_.HasWorker("c"));
  EXPECT_EQ(run_.first_worker(), "a");
}

// As an older planner has stored it.
TEST(RunOfIdleDevices, AreNoPartOfIt) {
  Job job = ThreeDevices();
  v1::Plan plan;
  for (const int device : {2, 0}) plan.mutable_program()->add_devices()->set_device(device);
  job.plan = Sealed<v1::Plan>(plan);
  stagewright::Run run(job, absl::Now());
  EXPECT_THAT(run.workers(), ElementsAre(Pair("a", ElementsAre(0, 2))));
  EXPECT_THAT(run.devices(), ElementsAre("a/cpu0", "a/cpu1"));
  ASSERT_TRUE(run.Prepare("a", {.total_steps = 9}).ok());
  EXPECT_TRUE(run.IsPrepared());
  const StepShare share{.figures = {.step = 1}};
  EXPECT_FALSE(run.steps().Add(0, share).has_value());
  EXPECT_TRUE(run.steps().Add(2, share).has_value());
}

TEST_F(RunTest, StartsWhenAllWorkersHaveAnsweredTwice) {
  EXPECT_THAT(run_.Unanswered(), ElementsAre("a", "b"));
  ASSERT_TRUE(run_.Prepare("b", {.first_step = 4, .total_steps = 9, .addresses = {{1, "x"}}}).ok());
  EXPECT_FALSE(run_.IsPrepared());
  EXPECT_THAT(run_.Unanswered(), ElementsAre("a"));
  ASSERT_TRUE(
      run_.Prepare("a", {.first_step = 4, .total_steps = 9, .addresses = {{0, "y"}, {2, "z"}}})
          .ok());
  EXPECT_TRUE(run_.IsPrepared());
  EXPECT_THAT(run_.addresses(), ElementsAre(Pair(0, "y"), Pair(1, "x"), Pair(2, "z")));
  EXPECT_FALSE(run_.Connect("a", absl::Now()));
  EXPECT_THAT(run_.Unanswered(), ElementsAre("b"));
  EXPECT_TRUE(run_.Connect("b", absl::Now()));
  EXPECT_EQ(run_.total_steps(), 9);
  EXPECT_FALSE(run_.IsNews({.step = 4}));
  EXPECT_TRUE(run_.IsNews({.step = 5, .time = 7}));
  EXPECT_FALSE(run_.IsNews({.step = 5, .time = 9}));
  EXPECT_EQ(run_.median_step_time(), 7);
}

TEST_F(RunTest, WorkersHaveToAgree) {
  ASSERT_TRUE(run_.Prepare("a", {.first_step = 4, .total_steps = 9}).ok());
  EXPECT_THAT(std::string(run_.Prepare("b", {.first_step = 4, .total_steps = 8}).message()),
              HasSubstr("worker b counts 8 steps, others 9"));
  EXPECT_THAT(std::string(run_.Prepare("b", {.first_step = 2, .total_steps = 9}).message()),
              HasSubstr("worker b after step 2 (), worker a after step 4"));
}

TEST_F(RunTest, IsCompleteWithTheLastWorker) {
  EXPECT_FALSE(run_.Complete("b", {{"z"}, 3, {0.5, 3, 2}, 0}));
  EXPECT_FALSE(run_.Complete("b", {{"z"}, 3, {0.5, 3, 2}, 0}));  // Said twice.
  EXPECT_TRUE(run_.Complete("a", {{"y", "x"}, 1, {0.25, 1, 1}, 7}));
  const Completion& all = run_.completion();
  EXPECT_THAT(all.shards, ElementsAre("x", "y", "z"));
  EXPECT_EQ(all.evaluated, 4);
  EXPECT_EQ(all.evaluation.loss, 0.75);
  EXPECT_EQ(all.evaluation.accuracy(), 0.75);
  EXPECT_EQ(all.stopped_after, 7);
}

TEST_F(RunTest, LosesWorkersAndRegainsThem) {
  run_.Lose("a", absl::UnixEpoch());
  run_.Lose("b", absl::UnixEpoch());
  EXPECT_THAT(run_.lost(), UnorderedElementsAre("a", "b"));
  EXPECT_TRUE(run_.Regain("a"));
  EXPECT_FALSE(run_.Regain("a"));
  EXPECT_THAT(run_.lost(), ElementsAre("b"));
}

TEST_F(RunTest, WaitsForEachLostWorkerByItself) {
  const absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(run_.due(), absl::InfiniteFuture());
  run_.Lose("a", now + absl::Seconds(10));
  run_.Lose("b", now + absl::Seconds(15));
  EXPECT_EQ(run_.due(), now + absl::Seconds(10));
  run_.deadline = now + absl::Seconds(2);
  EXPECT_EQ(run_.due(), now + absl::Seconds(2));
  run_.MoveDeadlines([](absl::Time& time) { time += absl::Seconds(100); });
  EXPECT_EQ(run_.due(), now + absl::Seconds(102));
  run_.deadline = absl::InfiniteFuture();
  EXPECT_EQ(run_.due(), now + absl::Seconds(110));
  run_.Regain("a");
  EXPECT_EQ(run_.due(), now + absl::Seconds(115));
  run_.NoteGone("b");
  EXPECT_EQ(run_.due(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace stagewright
