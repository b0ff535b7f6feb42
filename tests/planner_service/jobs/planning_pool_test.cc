#include "planner_service/jobs/planning_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PlanningPoolTest, ItsThreadsLeaveTheCoresToOthers) {
  const auto niceness = [] { return getpriority(PRIO_PROCESS, 0); };  // The thread's.
  const int own = niceness();
  int searching = own;
  absl::Notification done;
  PlanningPool pool(1, 1);
  ASSERT_TRUE(pool.Submit([&] {
                    searching = niceness();
                    done.Notify();
                  })
                  .ok());
  done.WaitForNotification();
  EXPECT_EQ(searching, std::min(own + PlanningPool::kNicer, 19));
  EXPECT_EQ(niceness(), own);
}

TEST(PlanningPoolTest, RefusesWhatDoesNotFitAndNamesTheLimit) {
  absl::Notification started, go;
  absl::BlockingCounter done(3);
  PlanningPool pool(1, 2);
  ASSERT_TRUE(pool.Submit([&] {
                    started.Notify();
                    go.WaitForNotification();
                    done.DecrementCount();
                  })
                  .ok());
  started.WaitForNotification();
  EXPECT_TRUE(pool.Submit([&] { done.DecrementCount(); }).ok());
  EXPECT_TRUE(pool.Submit([&] { done.DecrementCount(); }).ok());
  EXPECT_EQ(pool.queued(), 2);
  const absl::Status refused = pool.Submit([] { ADD_FAILURE() << "it was refused"; });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("limit 2"));
  EXPECT_EQ(pool.rejected(), 1);
  go.Notify();
  done.Wait();
  EXPECT_TRUE(pool.Submit([] {}).ok());
}

// A pool with one thread, which is busy until it is told to go on, and what it ran then.
class SharedPoolTest : public ::testing::Test {
 protected:
  SharedPoolTest() {
    absl::Notification started;
    EXPECT_TRUE(pool_
                    .Submit([&] {
                      started.Notify();
                      go_.WaitForNotification();
                    })
                    .ok());
    started.WaitForNotification();
  }

  absl::Status Submit(const std::string& caller, const std::string& name) {
    return pool_.Submit({caller, [this, name] { ran_.push_back(name); },
                         [this, name](const absl::Status& full) {
                           EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
                           gave_up_.push_back(name);
                         },
                         [this, name] { return over_.contains(name); }});
  }
  // All that ran, in order.
  std::vector<std::string> Run() {
    go_.Notify();
    while (pool_.queued() > 0) absl::SleepFor(absl::Milliseconds(1));
    absl::Notification last;
    EXPECT_TRUE(pool_.Submit([&] { last.Notify(); }).ok());
    last.WaitForNotification();
    return ran_;
  }

  std::vector<std::string> ran_, gave_up_;
  std::set<std::string> over_;  // What nobody waits for.
  absl::Notification go_;
  PlanningPool pool_{1, 4, PlanningPool::kNicer, absl::InfiniteDuration()};
};

TEST_F(SharedPoolTest, CallersTakeTurns) {
  for (const char* name : {"a1", "a2", "b1", "a3"})
    ASSERT_TRUE(Submit(std::string(1, name[0]), name).ok());
  EXPECT_THAT(Run(), ElementsAre("a1", "b1", "a2", "a3"));
  EXPECT_THAT(gave_up_, ElementsAre());
}

TEST_F(SharedPoolTest, WhoHasMostInAFullQueueMakesRoomForOthers) {
  for (const char* name : {"a1", "a2", "a3", "a4"}) ASSERT_TRUE(Submit("a", name).ok());
  EXPECT_TRUE(Submit("b", "b1").ok());
  EXPECT_THAT(gave_up_, ElementsAre("a4"));
  EXPECT_TRUE(Submit("b", "b2").ok());
  EXPECT_THAT(gave_up_, ElementsAre("a4", "a3"));
  EXPECT_TRUE(absl::IsResourceExhausted(Submit("a", "a5")));
  EXPECT_TRUE(absl::IsResourceExhausted(Submit("b", "b3"))) << "as many as the other";
  EXPECT_TRUE(Submit("c", "c1").ok());
  EXPECT_THAT(gave_up_, ElementsAre("a4", "a3", "b2"));
  EXPECT_TRUE(Submit("d", "d1").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Submit("d", "d2"))) << "all have one";
  EXPECT_EQ(pool_.queued(), 4);
  EXPECT_EQ(pool_.rejected(), 7);
  EXPECT_THAT(Run(), ElementsAre("a1", "b1", "c1", "d1"));
}

TEST_F(SharedPoolTest, WhatNobodyWaitsForMakesRoomBeforeAllOthers) {
  for (const char* name : {"a1", "b1", "b2", "b3"})
    ASSERT_TRUE(Submit(std::string(1, name[0]), name).ok());
  over_ = {"a1", "b2"};
  EXPECT_TRUE(gave_up_.empty()) << "the queue was not full";
  EXPECT_TRUE(Submit("c", "c1").ok());
  EXPECT_THAT(gave_up_, ElementsAre("a1", "b2"));
  EXPECT_TRUE(Submit("a", "a2").ok());
  EXPECT_EQ(pool_.rejected(), 0);
  EXPECT_THAT(Run(), ElementsAre("b1", "c1", "a2", "b3"));
}

TEST_F(SharedPoolTest, WhatTheServiceItselfPlansDoesNotLeave) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(pool_.Submit([this] { ran_.emplace_back("job"); }).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Submit("a", "a1")));
  EXPECT_THAT(Run(), ElementsAre("job", "job", "job", "job"));
}

// Works that last until they are let go, in a pool that keeps nobody waiting for long.
class ImpatientPoolTest : public ::testing::Test {
 protected:
  // Works of the caller, of which the first `started` have begun when this returns.
  void Submit(PlanningPool& pool, const std::string& caller, int works, int started) {
    absl::Notification& go = go_[caller];
    for (int i = 0; i < works; ++i) {
      EXPECT_TRUE(pool.Submit({caller,
                               [&] {
                                 ++started_;
                                 go.WaitForNotification();
                               },
                               nullptr})
                      .ok());
    }
    const int before = begun_;
    begun_ += started;
    while (started_ < before + started) absl::SleepFor(absl::Milliseconds(1));
  }
  // That another caller's work runs meanwhile.
  static void ExpectServed(PlanningPool& pool, const std::string& caller) {
    absl::Notification served;
    EXPECT_TRUE(pool.Submit({caller, [&] { served.Notify(); }, nullptr}).ok());
    served.WaitForNotification();
  }

  std::map<std::string, absl::Notification> go_;
  std::atomic<int> started_{0};
  int begun_ = 0;
};

TEST_F(ImpatientPoolTest, LongWorkOfOneCallerDoesNotStopOthers) {
  PlanningPool pool(2, 8, PlanningPool::kNicer, absl::Milliseconds(20));
  Submit(pool, "a", 4, 2);
  for (int i = 0; i < 3; ++i) ExpectServed(pool, "b");
  EXPECT_EQ(started_, 2) << "the thread that is kept for others works for it, too";
  EXPECT_EQ(pool.queued(), 2);
  go_["a"].Notify();
}

TEST_F(ImpatientPoolTest, NobodyHasTheKeptThreadBesidesAllOthers) {
  PlanningPool pool(1, 8, PlanningPool::kNicer, absl::Milliseconds(20));
  Submit(pool, "first", 1, 1);
  Submit(pool, "a", 3, 1);  // By the kept thread.
  go_["first"].Notify();
  for (int i = 0; i < 3; ++i) ExpectServed(pool, "b");
  EXPECT_EQ(started_, 2) << "as many as there are threads besides";
  go_["a"].Notify();
}

TEST(PlanningPoolTest, WithoutAQueueIdleThreadsStillTakeWork) {
  absl::BlockingCounter done(20);
  PlanningPool pool(2, 0);
  // Threads become idle a moment after the pool exists, and after each piece of work: as they leave
  // the cores to others, whenever these let them.
  for (int i = 0; i < 20; ++i) {
    while (!pool.Submit([&] { done.DecrementCount(); }).ok()) absl::SleepFor(absl::Milliseconds(2));
  }
  done.Wait();
}

TEST(PlanningPoolTest, RunsWhatIsQueuedBeforeItGoes) {
  std::atomic<int> done{0};
  {
    PlanningPool pool(2, 100);
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(pool.Submit([&] {
                        absl::SleepFor(absl::Milliseconds(1));
                        ++done;
                      })
                      .ok());
    }
  }
  EXPECT_EQ(done, 50);
}

}  // namespace
}  // namespace stagewright
