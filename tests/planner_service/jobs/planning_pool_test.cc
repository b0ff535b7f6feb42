#include "planner_service/jobs/planning_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace stagewright {
namespace {

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
