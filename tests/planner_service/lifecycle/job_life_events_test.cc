// What is remembered of what happened to jobs and workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "planner_service/lifecycle/job_manager.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;

class JobLifeEventsTest : public ::testing::Test {
 protected:
  void Restart() {
    harness_->jobs->Suspend();
    harness_ = std::make_unique<JobHarness>(&store_);
  }

  RecordingStore store_;
  std::unique_ptr<JobHarness> harness_ = std::make_unique<JobHarness>(&store_);
};

template <typename Told>
std::vector<v1::EventKind> KindsOf(const Told& told) {
  std::vector<v1::EventKind> kinds;
  for (const v1::Event& event : told.events()) kinds.push_back(event.kind());
  return kinds;
}

TEST_F(JobLifeEventsTest, AJobRemembersWhatHappenedToItAlsoAfterARestart) {
  harness_->Connect("a");
  harness_->Connect("b");
  harness_->Worker("b").silent_on = {v1::ConnectResponse::kStart};
  v1::JobSpec spec = SmallSpec();
  spec.set_num_devices(2);
  const std::string job = harness_->Submit(spec);
  harness_->Await(job, v1::JOB_STATE_RUNNING);
  harness_->Disconnect("b");
  harness_->Connect("b", {{job, 1}});
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(harness_->jobs->Cancel(job).ok());
  const auto expect_all = [&] {
    const v1::Job seen = harness_->Get(job);
    EXPECT_EQ(KindsOf(seen)[0], v1::EVENT_KIND_SUBMITTED);
    EXPECT_THAT(KindsOf(seen), IsSupersetOf({v1::EVENT_KIND_STATE, v1::EVENT_KIND_WORKER_LOST,
                                             v1::EVENT_KIND_WORKER_BACK}));
    EXPECT_EQ(seen.events().rbegin()->state(), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(seen.events().rbegin()->message(), "cancelled by request");
    for (const v1::Event& event : seen.events()) {
      EXPECT_EQ(event.job(), job);
      EXPECT_GT(event.time().seconds(), 0);
      if (event.kind() == v1::EVENT_KIND_WORKER_LOST) {
        EXPECT_EQ(event.worker(), "b");
        EXPECT_EQ(event.message(), "its connection ended");
      }
    }
  };
  expect_all();
  EXPECT_THAT(KindsOf(harness_->jobs->Workers(/*events=*/true)),
              ElementsAre(v1::EVENT_KIND_WORKER_CONNECTED, v1::EVENT_KIND_WORKER_LOST,
                          v1::EVENT_KIND_WORKER_CONNECTED));
  Restart();
  expect_all();
}

TEST_F(JobLifeEventsTest, WorkersAreListedWithWhatHappenedUntilThatMoment) {
  ::testing::internal::CaptureStderr();  // A line for every coming and going.
  std::atomic<bool> over = false;
  std::thread comes_and_goes([&] {
    for (int i = 0; i < 1000; ++i) {
      harness_->Connect("a");
      harness_->Disconnect("a");
    }
    over = true;
  });
  int64_t answers_at_odds = 0;
  while (!over) {
    const v1::ListWorkersResponse told = harness_->jobs->Workers(/*events=*/true);
    int64_t here = 0;
    for (const v1::Event& event : told.events())
      here += event.kind() == v1::EVENT_KIND_WORKER_CONNECTED ? event.count() : -event.count();
    answers_at_odds += here == told.workers_size() ? 0 : 1;
  }
  comes_and_goes.join();
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(answers_at_odds, 0);
}

TEST_F(JobLifeEventsTest, ARefusedJobIsNotSaidToBeSubmitted) {
  store_.FailWhen([](const v1::Job&) { return true; });
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(harness_->jobs->Submit(SmallSpec(), "").ok());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  store_.FailWhen([](const v1::Job&) { return false; });
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(harness_->jobs->Submit(SmallSpec(), "once", "ipv4:10.0.0.7:4242").ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr(" info submitted job=jobs/1 state=pending request=once "
                                   "client=ipv4:10.0.0.7:4242"));
}

}  // namespace
}  // namespace stagewright
