#include "planner_service/jobs/planning_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <memory>

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
  std::atomic<int> done{0};
  PlanningPool pool(1, 2);
  ASSERT_TRUE(pool.Submit([&] {
                    started.Notify();
                    go.WaitForNotification();
                    ++done;
                  })
                  .ok());
  started.WaitForNotification();
  EXPECT_TRUE(pool.Submit([&] { ++done; }).ok());
  EXPECT_TRUE(pool.Submit([&] { ++done; }).ok());
  EXPECT_EQ(pool.queued(), 2);
  const absl::Status refused = pool.Submit([&] { ++done; });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("limit 2"));
  EXPECT_EQ(pool.rejected(), 1);
  go.Notify();
  for (int i = 0; i < 1000 && done < 3; ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(done, 3);
  EXPECT_TRUE(pool.Submit([] {}).ok());
}

TEST(PlanningPoolTest, WithoutAQueueIdleThreadsStillTakeWork) {
  PlanningPool pool(2, 0);
  std::atomic<int> done{0};
  // Threads become idle a moment after the pool exists, and after each piece of work.
  for (int i = 0; i < 20; ++i) {
    absl::Status status;
    for (int attempt = 0; attempt < 1000; ++attempt) {
      status = pool.Submit([&] { ++done; });
      if (status.ok()) break;
      absl::SleepFor(absl::Milliseconds(2));
    }
    ASSERT_TRUE(status.ok()) << status;
  }
  for (int i = 0; i < 1000 && done < 20; ++i) absl::SleepFor(absl::Milliseconds(2));
  EXPECT_EQ(done, 20);
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
