#include "planner_service/jobs/job_watches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <vector>

#include "absl/time/clock.h"
#include "planner_service/jobs/job_proto.h"
#include "tests/planner_service/jobs/small_spec.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;

// Jobs that change, and how often they were asked for.
class Source {
 public:
  explicit Source(absl::Duration interval)
      : watches([this](int64_t job) { return Fetch(job); }, interval) {}

  void Change(int64_t number, const std::string& message) {
    {
      absl::MutexLock lock(&mutex_);
      Job& job = jobs_[number];
      if (job.spec == nullptr) SetSpec(testing::SmallSpec(), job);
      job.number = number;
      job.message = message;
      ++job.version;
    }
    watches.Changed(number);
  }

  void Delete(int64_t number) {
    absl::MutexLock lock(&mutex_);
    jobs_.erase(number);
  }

  int fetched() const { return fetched_; }
  void AwaitFetched(int times) {
    absl::MutexLock lock(&mutex_);
    const auto is_fetched = [&] { return fetched_ >= times; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&is_fetched), absl::Seconds(20)));
  }

  std::atomic<bool> answers{true};

 private:
  absl::StatusOr<Job> Fetch(int64_t number) {
    absl::MutexLock lock(&mutex_);
    ++fetched_;
    if (!answers) return absl::UnavailableError("not now");
    const auto it = jobs_.find(number);
    if (it == jobs_.end()) return absl::NotFoundError("deleted");
    return it->second;
  }

  absl::Mutex mutex_;
  std::map<int64_t, Job> jobs_;
  std::atomic<int> fetched_{0};

 public:
  JobWatches watches;
};

// What a watcher was told.
class Told {
 public:
  JobWatches::Watcher Into() {
    return [this](JobWatches::Snapshot job) {
      absl::MutexLock lock(&mutex_);
      messages_.push_back(job == nullptr ? "gone" : job->message());
      last_ = std::move(job);
    };
  }
  std::vector<std::string> Await(const std::string& message) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    absl::MutexLock lock(&mutex_);
    const auto is_told = [&] { return !messages_.empty() && messages_.back() == message; };
    mutex_.AwaitWithDeadline(absl::Condition(&is_told), deadline);
    return messages_;
  }
  JobWatches::Snapshot last() {
    absl::MutexLock lock(&mutex_);
    return last_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> messages_;
  JobWatches::Snapshot last_;
};

TEST(JobWatches, TellEachOfItsJobUntilItIsRemoved) {
  Source source(absl::ZeroDuration());
  Told first, second, other;
  source.Change(1, "begun");
  source.Change(2, "other");
  const int64_t id = source.watches.Add(1, first.Into());
  EXPECT_NE(source.watches.Add(2, other.Into()), id);
  EXPECT_THAT(first.Await("begun"), ElementsAre("begun"));
  source.Change(1, "changed");
  EXPECT_THAT(first.Await("changed"), ElementsAre("begun", "changed"));
  source.watches.Remove(id);
  source.watches.Add(1, second.Into());
  source.Change(1, "again");
  second.Await("again");
  EXPECT_THAT(first.Await("changed"), ElementsAre("begun", "changed"));
  EXPECT_THAT(other.Await("other"), ElementsAre("other"));
  EXPECT_EQ(source.watches.watchers(), 2);
}

TEST(JobWatches, TellOfAJobThatIsGoneBeforeItsEndWasTold) {
  Source source(absl::Milliseconds(1));
  Told told, late;
  source.Change(1, "begun");
  source.watches.Add(1, told.Into());
  told.Await("begun");
  source.Delete(1);
  source.watches.Changed(1);  // Its end, which nobody has seen.
  EXPECT_THAT(told.Await("gone"), ElementsAre("begun", "gone"));
  source.watches.Add(1, late.Into());
  EXPECT_THAT(late.Await("gone"), ElementsAre("gone"));
}

TEST(JobWatches, LeaveTheGraphOut) {
  Source source(absl::ZeroDuration());
  Told told;
  source.Change(1, "begun");
  source.watches.Add(1, told.Into());
  told.Await("begun");
  EXPECT_EQ(told.last()->name(), "jobs/1");
  EXPECT_EQ(told.last()->spec().graph().nodes_size(), 0);
}

TEST(JobWatches, OneMessageIsMadeForAllWatchers) {
  Source source(absl::ZeroDuration());
  std::vector<Told> told(100);
  source.Change(1, "begun");
  for (Told& watcher : told) source.watches.Add(1, watcher.Into());
  for (Told& watcher : told) watcher.Await("begun");
  source.Change(1, "changed");
  for (Told& watcher : told) watcher.Await("changed");
  for (Told& watcher : told) EXPECT_EQ(watcher.last().get(), told[0].last().get());
}

TEST(JobWatches, AFastJobIsToldAtIntervalsAndAlwaysTheNewest) {
  Source source(absl::Milliseconds(50));
  Told told;
  source.Change(1, "0");
  source.watches.Add(1, told.Into());
  told.Await("0");
  const absl::Time begin = absl::Now();
  int changes = 0;
  while (absl::Now() < begin + absl::Milliseconds(300)) {
    source.Change(1, std::to_string(++changes));
    absl::SleepFor(absl::Microseconds(100));
  }
  source.Change(1, "last");
  const std::vector<std::string> messages = told.Await("last");
  const auto most = static_cast<size_t>((absl::Now() - begin) / absl::Milliseconds(50)) + 3;
  EXPECT_GT(changes, 10);
  EXPECT_LE(messages.size(), most);
  EXPECT_LE(source.fetched(), static_cast<int>(most));
}

TEST(JobWatches, AJobThatCannotBeReadIsAskedForAgain) {
  Source source(absl::ZeroDuration());
  Told told;
  source.Change(1, "begun");
  source.answers = false;
  source.watches.Add(1, told.Into());
  source.AwaitFetched(1);
  source.answers = true;
  EXPECT_THAT(told.Await("begun"), ElementsAre("begun"));
}

}  // namespace
}  // namespace stagewright
