#include "planner_service/queue/named_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner_service/queue/place_jobs.h"
#include "planner_service/queue/servable_jobs.h"
#include "tests/planner_service/queue/queue_cases.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::Holds;
using ::testing::IsEmpty;
using testing::StateOf;
using testing::ToText;
using testing::Waits;
using State = NamedDevice::State;

WaitingJob Names(int64_t number, std::vector<std::string> devices, int32_t priority = 0) {
  WaitingJob job = Waits(number, static_cast<int64_t>(devices.size()), priority);
  job.named = std::move(devices);
  return job;
}

NamedDevice HeldBy(int64_t job) { return {State::kHeld, job, absl::StrCat("jobs/", job, " uses")}; }
const NamedDevice kFree = {State::kFree, 0, ""};

// "a" is free, and job 9 holds "b"; so many others are free.
QueueState AFreeAndBHeld(int64_t others, std::vector<WaitingJob> waiting) {
  QueueState state = StateOf(others + 1, {Holds(9, 1)}, std::move(waiting));
  state.named = {{"a", kFree}, {"b", HeldBy(9)}};
  return state;
}

TEST(NamedDevicesTest, AJobStartsOnThoseThatItNames) {
  const QueueDecision decision = PlaceJobs(AFreeAndBHeld(3, {Names(1, {"a"})}), {});
  ASSERT_EQ(ToText(decision), "starts 1:1");
  EXPECT_THAT(decision.starts[0].named, ElementsAre("a"));
}

TEST(NamedDevicesTest, AJobWaitsForThoseThatItNamesAndOthersGoOnWithTheRest) {
  const QueueDecision decision =
      PlaceJobs(AFreeAndBHeld(2, {Names(1, {"a", "b"}), Waits(2, 1), Waits(3, 2)}), {});
  ASSERT_EQ(ToText(decision), "starts 2:1 | waits 1 named, 3 devices");
  EXPECT_EQ(decision.queued[0].text, "waits for b, which jobs/9 uses");
  EXPECT_EQ(decision.queued[1].text,
            "waits for 2 free devices: 1 is free, 1 is kept for jobs before that name them");
  EXPECT_THAT(decision.starts[0].named, IsEmpty());
}

TEST(NamedDevicesTest, WhoNamesNoneTakesThemLast) {
  // Job 1 is before the one that names "a", which it needs.
  QueueDecision decision = PlaceJobs(AFreeAndBHeld(1, {Waits(1, 2), Names(2, {"a"})}), {});
  ASSERT_EQ(ToText(decision), "starts 1:2 | waits 2 named");
  EXPECT_THAT(decision.starts[0].named, ElementsAre("a"));
  EXPECT_EQ(decision.queued[0].text, "waits for a, which jobs/1 uses");
  decision = PlaceJobs(AFreeAndBHeld(2, {Waits(1, 2), Names(2, {"a"})}), {});
  ASSERT_EQ(ToText(decision), "starts 1:2, 2:1");
  EXPECT_THAT(decision.starts[0].named, IsEmpty());
}

TEST(NamedDevicesTest, AJobThatWaitsForManyDelaysOneThatNamesSome) {
  // Jobs that are before it may need any.
  EXPECT_EQ(ToText(PlaceJobs(AFreeAndBHeld(0, {Waits(1, 2), Names(2, {"a"})}), {})),
            "waits 1 devices, 2 behind");
  EXPECT_EQ(ToText(PlaceJobs(AFreeAndBHeld(0, {Names(1, {"a"}), Waits(2, 2)}), {})),
            "starts 1:1 | waits 2 devices");
}

TEST(NamedDevicesTest, TheFirstThatNamesADeviceKeepsIt) {
  QueueState state = AFreeAndBHeld(0, {Names(1, {"a", "b"}), Names(2, {"a"})});
  const QueueDecision decision = PlaceJobs(state, {});
  ASSERT_EQ(ToText(decision), "waits 1 named, 2 named");
  EXPECT_EQ(decision.queued[1].text, "waits for a, which jobs/1 waits for before it");
  // With a higher priority it is before.
  state.waiting[1].priority = 1;
  EXPECT_EQ(ToText(PlaceJobs(state, {})), "starts 2:1 | waits 1 named");
}

TEST(NamedDevicesTest, AJobForAllIsNotDelayedByThoseBehindIt) {
  // Job 2 needs what job 1 keeps, too: nobody behind it may take what is left.
  EXPECT_EQ(
      ToText(PlaceJobs(AFreeAndBHeld(1, {Names(1, {"a", "b"}), Waits(2, 3), Waits(3, 1)}), {})),
      "waits 1 named, 2 devices, 3 behind");
}

TEST(NamedDevicesTest, ThoseThatAreOutAreToldAndNothingIsKeptMeanwhile) {
  QueueState state = AFreeAndBHeld(0, {Names(1, {"a", "b", "c"}), Waits(2, 1)});
  state.named["c"] = {State::kOut, 0, "is cordoned"};
  QueueDecision decision = PlaceJobs(state, {});
  ASSERT_EQ(ToText(decision), "starts 2:1 | waits 1 named");
  EXPECT_EQ(decision.queued[0].text, "waits for b, which jobs/9 uses; c, which is cordoned");
  EXPECT_EQ(ServableJobs(state, {}, Account()), 1);
  // Unless its worker may be back at any moment.
  state.waiting[0].awaits_workers = true;
  EXPECT_EQ(ToText(PlaceJobs(state, {})), "waits 1 named, 2 devices");
  EXPECT_EQ(ServableJobs(state, {}, Account()), 2);
}

TEST(NamedDevicesTest, OneThatWaitsForItsQuotaKeepsNothing) {
  QueueRules rules;
  rules.other_owners = 1;
  QueueState state = AFreeAndBHeld(0, {Names(1, {"a"}), Waits(2, 1)});
  state.waiting[1].account.owner = "bob";
  EXPECT_EQ(ToText(PlaceJobs(state, rules)), "starts 2:1 | waits 1 quota");
}

TEST(NamedDevicesTest, ThoseThatHoldThemMakeRoomOrNobodyDoes) {
  QueueState state = AFreeAndBHeld(0, {Names(1, {"b", "c"}, 2)});
  state.holding = {Holds(7, 1), Holds(8, 1, 1), Holds(9, 1)};
  state.named["c"] = HeldBy(8);
  for (HoldingJob& job : state.holding) job.preemptible = true;
  EXPECT_EQ(ToText(PlaceJobs(state, {})), "preempts 8 for 1, 9 for 1 | waits 1 room");
  state.holding[1].preemptible = false;
  EXPECT_EQ(ToText(PlaceJobs(state, {})), "waits 1 named");
  // While they save their state it waits for them.
  state.holding[1].preemptible = true;
  state.holding[1].room_for = state.holding[2].room_for = 1;
  EXPECT_EQ(ToText(PlaceJobs(state, {})), "waits 1 room");
}

TEST(NamedDevicesTest, WhatIsKeptIsLentToPreemptibleJobsOfLowerPriority) {
  QueueState state = AFreeAndBHeld(0, {Names(1, {"a", "b"}, 2), Waits(2, 1), Waits(3, 1, 2)});
  state.waiting[1].preemptible = state.waiting[2].preemptible = true;
  QueueDecision decision = PlaceJobs(state, {});
  EXPECT_EQ(ToText(decision), "starts 2:1 | waits 1 named, 3 devices");
  EXPECT_THAT(decision.starts[0].named, ElementsAre("a"));
  state.waiting[1] = Names(2, {"a"});
  EXPECT_EQ(ToText(PlaceJobs(state, {})), "waits 1 named, 3 devices, 2 named");
  state.waiting[1].preemptible = true;
  decision = PlaceJobs(state, {});
  EXPECT_EQ(ToText(decision), "starts 2:1 | waits 1 named, 3 devices");
  EXPECT_THAT(decision.starts[0].named, ElementsAre("a"));
  // In moments it would have to go again.
  state.holding[0].preemptible = true;
  EXPECT_EQ(ToText(PlaceJobs(state, {})), "preempts 9 for 1 | waits 1 room, 3 devices, 2 named");
}

TEST(NamedDevicesTest, WhatIsLentComesBackWhenTheRestIsFree) {
  QueueState state = AFreeAndBHeld(0, {Names(1, {"a", "b"}, 2)});
  state.holding.push_back(Holds(8, 1));
  state.holding[1].preemptible = true;
  state.devices.free = 0;
  state.named["a"] = HeldBy(8);
  EXPECT_EQ(ToText(PlaceJobs(state, {})), "waits 1 named");
  state.holding.erase(state.holding.begin());
  state.named["b"] = kFree;
  state.devices.free = 1;
  EXPECT_EQ(ToText(PlaceJobs(state, {})), "preempts 8 for 1 | waits 1 room");
}

TEST(NamedDevicesTest, AsFewAreLentAsAJobNeeds) {
  QueueState state = AFreeAndBHeld(1, {Names(1, {"a", "b"}, 2), Waits(2, 1), Waits(3, 1)});
  state.waiting[1].most = 2;
  state.waiting[1].preemptible = state.waiting[2].preemptible = true;
  const QueueDecision decision = PlaceJobs(state, {});
  EXPECT_EQ(ToText(decision), "starts 2:1, 3:1 | waits 1 named");
  EXPECT_THAT(decision.starts[0].named, IsEmpty());
  EXPECT_THAT(decision.starts[1].named, ElementsAre("a"));
}

// Devices d0 to d7 with random holders, and jobs of which some name some.
QueueState RandomNames(testing::Rng& rng) {
  QueueState state = testing::RandomState(rng);
  std::vector<std::string> free;
  for (int64_t i = 0; i < state.devices.free; ++i) free.push_back(absl::StrCat("free", i));
  std::map<std::string, NamedDevice> all;
  for (const std::string& name : free) all[name] = kFree;
  for (const HoldingJob& job : state.holding) {
    for (int64_t i = 0; i < job.returns; ++i)
      all[absl::StrCat("held", job.number, "-", i)] = HeldBy(job.number);
  }
  for (WaitingJob& job : state.waiting) {
    if (testing::Uniform(rng, 0, 1) == 0) continue;
    for (const auto& [name, device] : all) {
      if (testing::Uniform(rng, 0, 4) == 0) job.named.push_back(name);
    }
    if (job.named.empty()) continue;
    job.least = job.most = static_cast<int64_t>(job.named.size());
    for (const std::string& name : job.named) state.named[name] = all[name];
  }
  return state;
}

TEST(NamedDevicesTest, NoDeviceIsGivenTwiceAndOnlyFreeOnes) {
  testing::Rng rng(1);
  int started = 0;
  for (int i = 0; i < 20'000; ++i) {
    const QueueState state = RandomNames(rng);
    const QueueDecision decision = PlaceJobs(state, testing::RandomRules(rng));
    SCOPED_TRACE(absl::StrCat("state ", i, ": ", ToText(decision)));
    ASSERT_EQ(decision.starts.size() + decision.queued.size(), state.waiting.size());
    const auto named_free =
        std::count_if(state.named.begin(), state.named.end(),
                      [](const auto& device) { return device.second.state == State::kFree; });
    std::set<std::string> given;
    int64_t others = 0;
    for (const StartingJob& start : decision.starts) {
      for (const std::string& name : start.named) {
        ASSERT_EQ(state.named.at(name).state, State::kFree);
        ASSERT_TRUE(given.insert(name).second) << name;
      }
      others += start.devices - static_cast<int64_t>(start.named.size());
      const auto job = std::find_if(state.waiting.begin(), state.waiting.end(),
                                    [&](const auto& one) { return one.number == start.number; });
      if (job->named.empty()) continue;
      ++started;
      ASSERT_EQ(start.named, job->named);
    }
    ASSERT_LE(others, state.devices.free - named_free);
    for (const QueuedJob& queued : decision.queued) ASSERT_NE(queued.text, "");
  }
  EXPECT_GT(started, 1000);
}

}  // namespace
}  // namespace stagewright
