#include "worker_daemon/daemon/ending_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/worker_daemon/daemon/no_metrics.h"
#include "tests/worker_daemon/daemon/small_job.h"

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EndingRunsTest : public ::testing::Test {
 protected:
  // A run that does not end before `released`.
  std::unique_ptr<WorkerRun> HangingRun() {
    const auto hangs = std::make_shared<absl::Notification>();
    const auto find = [this, hangs](const std::string& name) -> std::optional<OfferedDevice> {
      if (!hangs->HasBeenNotified()) hangs->Notify();
      released_.WaitForNotification();
      return OfferedDevice{name, "cpu", kGiB};
    };
    auto run = std::make_unique<WorkerRun>(
        SmallJob("ending_runs", {"cpu0"}), find, [](const v1::ConnectRequest&) {}, &metrics_,
        Places{}, nullptr);
    // What a run has not begun to do it drops when it is over.
    hangs->WaitForNotification();
    return run;
  }

  EndingRuns::OnEnded OnEnded() {
    return [this](const std::string& job, int64_t generation) {
      Note(absl::StrCat(job, " of ", generation, " ended"));
    };
  }
  EndingRuns::OnStuck OnStuck() {
    return [this](const std::string& job, const std::string& devices) {
      Note(absl::StrCat(job, " on ", devices, " hangs"));
    };
  }
  void Note(const std::string& what) {
    absl::MutexLock lock(&mutex_);
    told_.push_back(what);
  }
  // What was told once so much was.
  std::vector<std::string> Told(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return told_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(60));
    return told_;
  }

  NoMetrics metrics_;
  absl::Notification released_;

 private:
  absl::Mutex mutex_;
  std::vector<std::string> told_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(EndingRunsTest, NobodyWaitsForARunThatHangs) {
  EndingRuns runs(OnEnded(), OnStuck(), absl::InfiniteDuration());
  runs.Add(HangingRun(), /*on_accelerator=*/true);
  EXPECT_TRUE(runs.Has("jobs/1", 3));
  EXPECT_EQ(runs.List().size(), 1u);
  released_.Notify();
  EXPECT_THAT(Told(1), ElementsAre("jobs/1 of 3 ended"));
  EXPECT_TRUE(runs.empty());
}

TEST_F(EndingRunsTest, OnAnAcceleratorItIsToldOnce) {
  EndingRuns runs(OnEnded(), OnStuck(), absl::Milliseconds(1));
  runs.Add(HangingRun(), /*on_accelerator=*/true);
  EXPECT_THAT(Told(1), ElementsAre("jobs/1 on cpu0 hangs"));
  released_.Notify();
  EXPECT_THAT(Told(2), ElementsAre("jobs/1 on cpu0 hangs", "jobs/1 of 3 ended"));
}

TEST_F(EndingRunsTest, OnTheHostItMayTakeItsTime) {
  EndingRuns runs(OnEnded(), OnStuck(), absl::ZeroDuration());
  runs.Add(HangingRun(), /*on_accelerator=*/false);
  runs.Add(HangingRun(), /*on_accelerator=*/true);
  EXPECT_EQ(Told(1).size(), 1u);
  released_.Notify();
  EXPECT_EQ(Told(3).size(), 3u);
}

TEST_F(EndingRunsTest, EndsWithNothingToDo) {
  { const EndingRuns runs(OnEnded(), OnStuck()); }
  EXPECT_THAT(Told(0), IsEmpty());
}

}  // namespace
}  // namespace stagewright::testing
