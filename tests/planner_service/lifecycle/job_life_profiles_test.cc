// What running jobs measure of operators is kept for plans to come, and nobody waits for that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/measured_job.h"

namespace stagewright {
namespace {

using testing::RecordingStore;
using testing::SmallSpec;

// Does not take what jobs measured before `read` has returned, if that is not for ever.
class SlowStore : public RecordingStore {
 public:
  ~SlowStore() {
    if (reader_.joinable()) reader_.join();
  }

  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    if (!batch.empty() && absl::StartsWith(batch[0].key, "job_profiles/")) {
      if (!reader_.joinable()) {
        reader_ = std::thread([this] {
          read();
          has_read_.Notify();
        });
        read_meanwhile = has_read_.WaitForNotificationWithTimeout(testing::kPatience);
      }
      ++written;
      if (full) return absl::ResourceExhaustedError("no space left");
    }
    return RecordingStore::WriteIf(conditions, batch);
  }

  std::function<void()> read;
  std::atomic<bool> full = false;  // It never takes it then.
  std::atomic<bool> read_meanwhile = false;
  std::atomic<int> written = 0;

 private:
  std::thread reader_;
  absl::Notification has_read_;
};

class JobProfilesTest : public testing::MeasuredJobTest {
 protected:
  JobProfilesTest() {
    slow_.read = [this] { EXPECT_TRUE(harness_->jobs->Get(job_).ok()); };
    harness_ = std::make_unique<testing::JobHarness>(&slow_);
    for (const char* worker : {"a", "b"}) {
      harness_->Connect(worker);
      harness_->Worker(worker).silent_on = {Message::kStart};
      harness_->Worker(worker).total_steps = 100'000;
    }
    v1::JobSpec spec = SmallSpec();
    spec.set_steps(100'000);
    job_ = harness_->Submit(spec);
    operators_ = true;
  }
  ~JobProfilesTest() override { harness_.reset(); }

  SlowStore slow_;
};

TEST_F(JobProfilesTest, AreWrittenWhileJobsAreRead) {
  ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  harness_->Pump();
  Steps(1, 10, 20'000'000);
  for (const absl::Time until = absl::Now() + testing::kPatience;
       slow_.written == 0 && absl::Now() < until;)
    absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(slow_.read_meanwhile);
  const std::string job = job_;
  harness_->jobs.reset();  // When it ends all is written.
  const auto known = harness_->profiles.Read();
  ASSERT_TRUE(known.ok()) << known.status();
  ASSERT_EQ((*known)->devices.size(), 1u);
  const auto& [device, operators] = *(*known)->devices.begin();
  EXPECT_EQ(device.kind, "cpu");
  ASSERT_EQ(operators.size(), 1u);
  EXPECT_EQ(operators.begin()->second.job, job);
  EXPECT_EQ(operators.begin()->second.samples.front().forward, 1'000);
}

TEST_F(JobProfilesTest, TheLogSaysWhatTheStoreDidNotTake) {
  slow_.full = true;
  slow_.read = [] {};  // The jobs may be gone by then.
  ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  harness_->Pump();
  ::testing::internal::CaptureStderr();
  Steps(1, 10, 20'000'000);
  const std::string job = job_;
  harness_->jobs.reset();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, ::testing::ContainsRegex("what a job measured is not kept.* job=" + job));
  EXPECT_THAT(log, ::testing::HasSubstr("no space left"));
}

// Takes long over what jobs measured and does not say whether it has it, and what it has of
// profiles is not told until it may be.
class SilentStore : public RecordingStore {
 public:
  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    if (batch.empty() || !absl::StrContains(batch[0].key, "profiles/"))
      return RecordingStore::WriteIf(conditions, batch);
    ++written;
    absl::SleepFor(takes);
    return absl::DeadlineExceededError("no answer");
  }
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const override {
    if (hangs && absl::StrContains(prefix, "profiles/"))
      waited_in_vain = !may.WaitForNotificationWithTimeout(testing::kPatience) || waited_in_vain;
    return RecordingStore::Scan(prefix);
  }

  absl::Duration takes;
  std::atomic<int> written = 0;
  std::atomic<bool> hangs = false;
  mutable absl::Notification may;
  mutable std::atomic<bool> waited_in_vain = false;
};

class SilentStoreTest : public testing::MeasuredJobTest {
 protected:
  SilentStoreTest() { harness_ = std::make_unique<testing::JobHarness>(&silent_); }
  ~SilentStoreTest() override { harness_.reset(); }
  void Connect(const std::string& worker) {
    harness_->Connect(worker);
    harness_->Worker(worker).silent_on = {Message::kStart};
    harness_->Worker(worker).total_steps = 100'000;
  }
  std::string SubmitSmall() {
    v1::JobSpec spec = SmallSpec();
    spec.set_steps(100'000);
    spec.set_num_devices(1);
    spec.mutable_plan_options()->set_num_stages(1);
    return harness_->Submit(spec);
  }

  SilentStore silent_;
};

TEST_F(SilentStoreTest, DoesNotKeepThePlannerFromEnding) {
  constexpr int kJobs = 6;
  silent_.takes = absl::Seconds(2);
  operators_ = true;
  for (int i = 0; i < kJobs; ++i) Connect(absl::StrCat("w", i));
  for (int i = 0; i < kJobs; ++i) {
    job_ = SubmitSmall();
    ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    harness_->Pump();
    Steps(1, 10, 20'000'000);
  }
  ::testing::internal::CaptureStderr();
  harness_->jobs.reset();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_GT(silent_.written, 0);
  EXPECT_LT(silent_.written, kJobs);
  EXPECT_THAT(log, ::testing::ContainsRegex("before the planner ended.* lost=[1-5] jobs=jobs/"));
}

TEST_F(SilentStoreTest, KeepsNoJobFromBeingPlanned) {
  Connect("a");
  OperatorProfile profile;
  profile.devices[{"another", "torch"}] = {{"mm", {"2026-11-22", {{4, 7, 0, 0, 0, 0, 0}}}}};
  ASSERT_TRUE(absl::IsDeadlineExceeded(harness_->profiles.Write(profile)));
  silent_.hangs = true;
  const std::string job = SubmitSmall();
  EXPECT_EQ(harness_->Await(job, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  EXPECT_FALSE(silent_.waited_in_vain);
  silent_.may.Notify();
}

}  // namespace
}  // namespace stagewright
