// What holds of every decision of the queue, in random states and in simulated service.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner_service/queue/place_jobs.h"
#include "tests/planner_service/queue/queue_cases.h"

namespace stagewright {
namespace {

using testing::RandomRules;
using testing::RandomState;
using testing::Rng;
using testing::ToText;
using testing::Uniform;

constexpr int kStates = 20'000;

std::map<int64_t, WaitingJob> ByNumber(const std::vector<WaitingJob>& jobs) {
  std::map<int64_t, WaitingJob> by_number;
  for (const WaitingJob& job : jobs) by_number[job.number] = job;
  return by_number;
}

std::map<Account, int64_t> InUse(const QueueState& state) {
  std::map<Account, int64_t> in_use;
  for (const HoldingJob& job : state.holding) in_use[job.account] += job.devices;
  return in_use;
}

HoldingJob Running(const WaitingJob& job, int64_t devices, absl::Time now) {
  HoldingJob running = {job.number, job.account, job.priority, job.preemptible,
                        devices,    devices,     {},           {}};
  if (job.takes.has_value()) running.ends = now + *job.takes;
  return running;
}

// The state after the jobs that start have started.
QueueState After(const QueueState& state, const QueueDecision& decision) {
  QueueState after = state;
  const auto waiting = ByNumber(state.waiting);
  for (const StartingJob& start : decision.starts) {
    after.holding.push_back(Running(waiting.at(start.number), start.devices, state.now));
    after.devices.free -= start.devices;
    std::erase_if(after.waiting, [&](const WaitingJob& job) { return job.number == start.number; });
  }
  return after;
}

std::string WithReasons(const QueueDecision& decision) {
  std::string text = ToText(decision);
  for (const QueuedJob& queued : decision.queued) absl::StrAppend(&text, "\n", queued.text);
  return text;
}

// Takes the job's devices from it.
void Stop(int64_t number, QueueState& state) {
  const auto job = std::find_if(state.holding.begin(), state.holding.end(),
                                [&](const HoldingJob& one) { return one.number == number; });
  state.devices.free += job->returns;
  state.holding.erase(job);
}

TEST(QueuePropertyTest, EveryJobIsDecidedOnceWithinDevicesAndQuotas) {
  Rng rng(1);
  for (int i = 0; i < kStates; ++i) {
    const QueueState state = RandomState(rng);
    const QueueRules rules = RandomRules(rng);
    const QueueDecision decision = PlaceJobs(state, rules);
    SCOPED_TRACE(absl::StrCat("state ", i, ": ", ToText(decision)));
    const auto waiting = ByNumber(state.waiting);
    std::set<int64_t> decided;
    int64_t given = 0;
    std::map<Account, int64_t> in_use = InUse(state);
    for (const StartingJob& start : decision.starts) {
      const WaitingJob& job = waiting.at(start.number);
      ASSERT_TRUE(decided.insert(start.number).second);
      ASSERT_GE(start.devices, job.least);
      ASSERT_LE(start.devices, job.most);
      given += start.devices;
      in_use[job.account] += start.devices;
      ASSERT_LE(in_use[job.account], rules.QuotaOf(job.account).value_or(1000));
    }
    ASSERT_LE(given, state.devices.free);
    for (size_t k = 0; k < decision.queued.size(); ++k) {
      ASSERT_TRUE(decided.insert(decision.queued[k].number).second);
      ASSERT_EQ(decision.queued[k].position, static_cast<int64_t>(k) + 1);
      ASSERT_NE(decision.queued[k].text, "");
      if (k == 0) continue;
      ASSERT_GE(waiting.at(decision.queued[k - 1].number).priority,
                waiting.at(decision.queued[k].number).priority);
    }
    ASSERT_EQ(decided.size(), state.waiting.size());
  }
}

TEST(QueuePropertyTest, TheOrderInWhichJobsAreListedDoesNotMatter) {
  Rng rng(2);
  for (int i = 0; i < kStates; ++i) {
    QueueState state = RandomState(rng);
    const QueueRules rules = RandomRules(rng);
    for (HoldingJob& job : state.holding) {
      if (Uniform(rng, 0, 1) == 1) job.room_for = Uniform(rng, 1, 14);
    }
    const std::string decision = WithReasons(PlaceJobs(state, rules));
    std::shuffle(state.waiting.begin(), state.waiting.end(), rng);
    std::shuffle(state.holding.begin(), state.holding.end(), rng);
    ASSERT_EQ(WithReasons(PlaceJobs(state, rules)), decision) << "state " << i;
  }
}

TEST(QueuePropertyTest, AJobThatStartsOverOneBeforeItDoesNotDelayIt) {
  Rng rng(3);
  int overtaken = 0;
  for (int i = 0; i < kStates; ++i) {
    const QueueState state = RandomState(rng);
    const QueueDecision decision = PlaceJobs(state, {});
    const auto waiting = ByNumber(state.waiting);
    for (const QueuedJob& queued : decision.queued) {
      const WaitingJob& first = waiting.at(queued.number);
      if (queued.reason != WaitReason::kDevices || queued.position != 1) continue;
      // What those of lower priority took all the same, but for those that give it back in time.
      int64_t taken = 0, given_before = 0;
      for (const StartingJob& start : decision.starts) {
        const WaitingJob& job = waiting.at(start.number);
        const bool lower = job.priority < first.priority;
        if (!lower) given_before += start.devices;
        if (lower && !job.preemptible && !job.takes.has_value()) taken += start.devices;
      }
      if (taken == 0) continue;
      ++overtaken;
      // Whatever single job ends first, or two, the first one starts then if it did without them.
      for (const HoldingJob& a : state.holding) {
        for (const HoldingJob& b : state.holding) {
          const int64_t back = a.returns + (a.number == b.number ? 0 : b.returns);
          const int64_t free = state.devices.free - given_before + back;
          if (free < first.least) continue;
          ASSERT_GE(free - taken, first.least) << "state " << i << ": " << ToText(decision);
        }
      }
    }
  }
  EXPECT_GT(overtaken, 20);
}

TEST(QueuePropertyTest, APriorityIsPassedOverOnlyForAReason) {
  Rng rng(4);
  for (int i = 0; i < kStates; ++i) {
    const QueueState state = RandomState(rng);
    const QueueRules rules = RandomRules(rng);
    const QueueDecision decision = PlaceJobs(state, rules);
    const QueueState after = After(state, decision);
    const auto waiting = ByNumber(state.waiting);
    const auto in_use = InUse(after);
    for (const QueuedJob& queued : decision.queued) {
      if (queued.position != 1) continue;
      // The first one in the queue could not start with what those of its priority and above left.
      const WaitingJob& job = waiting.at(queued.number);
      int64_t free = state.devices.free;
      for (const StartingJob& start : decision.starts) {
        if (waiting.at(start.number).priority >= job.priority) free -= start.devices;
      }
      const auto held = in_use.find(job.account);
      const int64_t quota = rules.QuotaOf(job.account).value_or(1000);
      const bool over = (held == in_use.end() ? 0 : held->second) + job.least > quota;
      ASSERT_TRUE(free < job.least || over) << "state " << i << ": " << ToText(decision);
    }
  }
}

TEST(QueuePropertyTest, PreemptedJobsAreOfLowerPriorityAndMakeRoomForAStart) {
  Rng rng(5);
  int preempted = 0;
  for (int i = 0; i < kStates; ++i) {
    const QueueState state = RandomState(rng);
    const QueueRules rules = i % 2 == 0 ? QueueRules() : RandomRules(rng);
    const QueueDecision decision = PlaceJobs(state, rules);
    if (decision.preemptions.empty()) continue;
    SCOPED_TRACE(absl::StrCat("state ", i, ": ", ToText(decision)));
    const auto waiting = ByNumber(state.waiting);
    std::map<int64_t, HoldingJob> holding;
    for (const HoldingJob& job : state.holding) holding[job.number] = job;
    QueueState after = After(state, decision);
    std::set<int64_t> for_jobs, victims;
    for (const Preemption& preemption : decision.preemptions) {
      ASSERT_TRUE(victims.insert(preemption.number).second);
      ASSERT_TRUE(holding.at(preemption.number).preemptible);
      ASSERT_LT(holding.at(preemption.number).priority, waiting.at(preemption.room_for).priority);
      for_jobs.insert(preemption.room_for);
      Stop(preemption.number, after);
    }
    preempted += static_cast<int>(victims.size());
    for (WaitingJob& job : after.waiting) job.room_made = for_jobs.contains(job.number);
    QueueDecision next = PlaceJobs(after, rules);
    const bool quotas =
        !rules.quotas.empty() || rules.other_owners.has_value() || rules.other_tenants.has_value();
    // With the devices, a job of higher priority may be able to make room in its account's quota.
    for (int round = 0; quotas && round < 6 && next.starts.empty(); ++round) {
      for (const Preemption& preemption : next.preemptions) Stop(preemption.number, after);
      next = PlaceJobs(after, rules);
    }
    ASSERT_FALSE(next.starts.empty()) << ToText(next);
    std::set<int64_t> started;
    for (const StartingJob& start : next.starts) started.insert(start.number);
    if (quotas) continue;
    ASSERT_TRUE(std::includes(started.begin(), started.end(), for_jobs.begin(), for_jobs.end()))
        << ToText(next);
  }
  EXPECT_GT(preempted, 1000);
}

// A service in which jobs come, run for a time that the queue knows of some only, and end.
class SimulatedService {
 public:
  SimulatedService(int64_t devices, QueueRules rules, uint64_t seed)
      : devices_(devices), rules_(std::move(rules)), rng_(seed) {
    state_.now = absl::FromUnixSeconds(1'000'000);
    state_.devices.free = devices;
  }

  // Lets so many jobs come, one every few seconds, and runs until all have ended.
  void Run(int jobs) {
    for (int second = 0; second < 100'000; ++second) {
      if (submitted_ < jobs && second % 3 == 0) Submit();
      EndJobs();
      Serve();
      if (submitted_ == jobs && state_.waiting.empty() && state_.holding.empty()) return;
      state_.now += absl::Seconds(1);
    }
    FAIL() << state_.waiting.size() << " jobs never started";
  }

  int preemptions() const { return preemptions_; }

 private:
  void Submit() {
    static constexpr const char* kOwners[] = {"ann", "bob", "cy"};
    WaitingJob job = {++submitted_,
                      Account::Of(kOwners[Uniform(rng_, 0, 2)], ""),
                      static_cast<int32_t>(Uniform(rng_, 0, 2)),
                      Uniform(rng_, 0, 1) == 1,
                      Uniform(rng_, 1, 4),
                      0,
                      {},
                      false};
    job.most = Uniform(rng_, 0, 4) == 0 ? devices_ : job.least;
    left_[job.number] = absl::Seconds(Uniform(rng_, 1, 40));
    if (Uniform(rng_, 0, 1) == 1) job.takes = left_[job.number];
    jobs_[job.number] = job;
    state_.waiting.push_back(job);
  }

  void EndJobs() {
    std::vector<int64_t> over;
    for (HoldingJob& job : state_.holding) {
      left_[job.number] -= absl::Seconds(1);
      if (left_[job.number] <= absl::ZeroDuration()) over.push_back(job.number);
    }
    for (const int64_t job : over) Stop(job, state_);
  }

  void Serve() {
    const QueueDecision decision = PlaceJobs(state_, rules_);
    state_ = After(state_, decision);
    ASSERT_GE(state_.devices.free, 0);
    int64_t in_use = 0;
    for (const HoldingJob& job : state_.holding) in_use += job.devices;
    ASSERT_EQ(in_use + state_.devices.free, devices_);
    for (const auto& [account, devices] : InUse(state_))
      ASSERT_LE(devices, rules_.QuotaOf(account).value_or(devices_));
    for (const Preemption& preemption : decision.preemptions) {
      ++preemptions_;
      Stop(preemption.number, state_);
      state_.waiting.push_back(jobs_[preemption.number]);
    }
  }

  const int64_t devices_;
  const QueueRules rules_;
  Rng rng_;
  QueueState state_;
  int64_t submitted_ = 0;
  std::map<int64_t, WaitingJob> jobs_;
  std::map<int64_t, absl::Duration> left_;
  int preemptions_ = 0;
};

TEST(QueuePropertyTest, NoJobStarves) {
  int preemptions = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    QueueRules rules;
    rules.quotas[Account::Of("bob", "")] = 4;
    SimulatedService service(/*devices=*/6, rules, seed);
    service.Run(/*jobs=*/100);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    preemptions += service.preemptions();
  }
  EXPECT_GT(preemptions, 20);
}

}  // namespace
}  // namespace stagewright
