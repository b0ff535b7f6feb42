#include "planner_service/queue/place_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner_service/queue/queue_cases.h"

namespace stagewright {
namespace {

using testing::Holds;
using testing::StateOf;
using testing::ToText;
using testing::Waits;

std::string Decide(const QueueState& state, const QueueRules& rules = {}) {
  return ToText(PlaceJobs(state, rules));
}

WaitingJob Preemptible(WaitingJob job) {
  job.preemptible = true;
  return job;
}

HoldingJob Preemptible(HoldingJob job) {
  job.preemptible = true;
  return job;
}

template <typename Job>
Job By(Job job, const char* owner) {
  job.account.owner = owner;
  return job;
}

TEST(PlaceJobsTest, ADecisionOfNothingIsEmpty) { EXPECT_EQ(Decide(StateOf(4, {}, {})), ""); }

TEST(PlaceJobsTest, HigherPriorityGoesFirstThenTheEarlierJob) {
  EXPECT_EQ(Decide(StateOf(2, {Holds(9, 1)}, {Waits(1, 1), Waits(2, 1), Waits(3, 1, 5)})),
            "starts 3:1, 1:1 | waits 2 devices");
}

TEST(PlaceJobsTest, InOnePriorityTheOwnerGoesFirstWhoHoldsTheFewestDevices) {
  EXPECT_EQ(Decide(StateOf(1, {Holds(9, 1)}, {Waits(1, 1), By(Waits(2, 1), "bob")})),
            "starts 2:1 | waits 1 devices");
  // They take turns.
  EXPECT_EQ(
      Decide(StateOf(3, {Holds(9, 1)},
                     {Waits(1, 1), Waits(2, 1), By(Waits(3, 1), "bob"), By(Waits(4, 1), "bob")})),
      "starts 3:1, 1:1, 4:1 | waits 2 devices");
}

TEST(PlaceJobsTest, OwnersTakeTurnsInTheQueueToo) {
  EXPECT_EQ(Decide(StateOf(0, {By(Holds(9, 4), "cy")},
                           {Waits(1, 1), Waits(2, 1), By(Waits(3, 1), "bob")})),
            "waits 1 devices, 3 devices, 2 devices");
}

TEST(PlaceJobsTest, AJobStartsWithAllItNeedsOrNotAtAll) {
  EXPECT_EQ(Decide(StateOf(3, {Holds(9, 1)}, {Waits(1, 4)})), "waits 1 devices");
  EXPECT_EQ(Decide(StateOf(4, {Holds(9, 1)}, {Waits(1, 4)})), "starts 1:4");
  WaitingJob any = Waits(1, 1);
  any.most = 10;
  EXPECT_EQ(Decide(StateOf(3, {Holds(9, 1)}, {any})), "starts 1:3");
  EXPECT_EQ(Decide(StateOf(0, {Holds(9, 1)}, {any})), "waits 1 devices");
}

TEST(PlaceJobsTest, AJobForMoreThanThereAreHoldsNobodyUp) {
  EXPECT_EQ(Decide(StateOf(2, {Holds(9, 1)}, {Waits(1, 4), Waits(2, 2)})),
            "starts 2:2 | waits 1 too_few");
  // What a job holds on workers that are closed does not come back.
  HoldingJob closed = Holds(9, 2);
  closed.returns = 1;
  EXPECT_EQ(Decide(StateOf(2, {closed}, {Waits(1, 4), Waits(2, 2)})),
            "starts 2:2 | waits 1 too_few");
}

TEST(PlaceJobsTest, AJobBehindOneThatWaitsMayNotDelayIt) {
  // Nobody knows when job 9 ends: it may be at once.
  EXPECT_EQ(Decide(StateOf(2, {Holds(9, 2)}, {Waits(1, 4), Waits(2, 1)})),
            "waits 1 devices, 2 behind");
  // Job 1 leaves one device over.
  EXPECT_EQ(Decide(StateOf(2, {Holds(9, 2)}, {Waits(1, 3), Waits(2, 1), Waits(3, 1)})),
            "starts 2:1 | waits 1 devices, 3 behind");
  // With job 8 alone, which may end first, it does not.
  EXPECT_EQ(Decide(StateOf(2, {Holds(8, 1), Holds(9, 2)}, {Waits(1, 3), Waits(2, 1)})),
            "waits 1 devices, 2 behind");
}

TEST(PlaceJobsTest, AJobThatEndsBeforeTheReservedStartGoesAhead) {
  QueueState state = StateOf(2, {Holds(9, 2)}, {Waits(1, 4), Waits(2, 2)});
  state.holding[0].ends = state.now + absl::Seconds(60);
  state.waiting[1].takes = absl::Seconds(61);
  EXPECT_EQ(Decide(state), "waits 1 devices, 2 behind");
  state.waiting[1].takes = absl::Seconds(60);
  EXPECT_EQ(Decide(state), "starts 2:2 | waits 1 devices");
}

TEST(PlaceJobsTest, APreemptibleJobOfLowerPriorityGoesAheadForTheMeantime) {
  EXPECT_EQ(Decide(StateOf(2, {Holds(9, 2, 9)}, {Waits(1, 4, 1), Preemptible(Waits(2, 2))})),
            "starts 2:2 | waits 1 devices");
  // In one priority nobody is preempted, so that it would delay the other.
  EXPECT_EQ(Decide(StateOf(2, {Holds(9, 2, 9)}, {Waits(1, 4), Preemptible(Waits(2, 2))})),
            "waits 1 devices, 2 behind");
  EXPECT_EQ(Decide(StateOf(0, {Holds(9, 2, 9), Preemptible(Holds(2, 2))}, {Waits(1, 2, 1)})),
            "preempts 2 for 1 | waits 1 room");
}

TEST(PlaceJobsTest, AQuotaCapsWhatAnOwnerHolds) {
  QueueRules rules;
  rules.quotas = {{Account::Of("ann", ""), 3}, {Account::Of("cy", ""), 0}};
  rules.other_owners = 1;
  EXPECT_EQ(Decide(StateOf(8, {Holds(9, 2)},
                           {Waits(1, 2), Waits(2, 1), By(Waits(3, 1), "bob"),
                            By(Waits(4, 1), "bob"), By(Waits(5, 1), "cy")}),
                   rules),
            "starts 3:1, 2:1 | waits 5 quota, 4 quota, 1 quota");
  // One that takes what is free takes no more than the quota.
  WaitingJob any = Waits(1, 1);
  any.most = 10;
  EXPECT_EQ(Decide(StateOf(8, {}, {any}), rules), "starts 1:3");
}

TEST(PlaceJobsTest, AJobThatWaitsForItsQuotaLeavesDevicesToOthers) {
  QueueRules rules;
  rules.quotas[Account::Of("ann", "")] = 2;
  EXPECT_EQ(Decide(StateOf(1, {Holds(9, 2)}, {Waits(1, 1, 5), By(Waits(2, 1), "bob")}), rules),
            "starts 2:1 | waits 1 quota");
}

TEST(PlaceJobsTest, AnOwnersSmallJobsDoNotKeepItsLargeOneFromItsQuota) {
  QueueRules rules;
  rules.quotas[Account::Of("ann", "")] = 4;
  EXPECT_EQ(Decide(StateOf(9, {Holds(9, 2)}, {Waits(1, 4, 1), Waits(2, 2)}), rules),
            "waits 1 quota, 2 behind");
}

TEST(PlaceJobsTest, PreemptsTheFewestAndYoungestOfLowerPriority) {
  const std::vector<HoldingJob> holding = {Preemptible(Holds(1, 2)), Preemptible(Holds(2, 2)),
                                           Preemptible(Holds(3, 1)), Holds(4, 4),
                                           Preemptible(Holds(5, 4, 7))};
  EXPECT_EQ(Decide(StateOf(0, holding, {Waits(9, 2, 7)})), "preempts 2 for 9 | waits 9 room");
  EXPECT_EQ(Decide(StateOf(1, holding, {Waits(9, 2, 7)})), "preempts 3 for 9 | waits 9 room");
  EXPECT_EQ(Decide(StateOf(0, holding, {Waits(9, 4, 7)})),
            "preempts 2 for 9, 1 for 9 | waits 9 room");
}

TEST(PlaceJobsTest, NobodyIsPreemptedForNothing) {
  // Not even all of them would do.
  EXPECT_EQ(Decide(StateOf(0, {Preemptible(Holds(1, 2)), Holds(2, 2)}, {Waits(9, 4, 1)})),
            "waits 9 devices");
  // Equal priority, or devices that come free anyway.
  EXPECT_EQ(Decide(StateOf(0, {Preemptible(Holds(1, 2))}, {Waits(9, 2)})), "waits 9 devices");
  QueueState ending = StateOf(0, {Preemptible(Holds(1, 2))}, {Waits(9, 2, 1)});
  ending.devices.ending = 2;
  EXPECT_EQ(Decide(ending), "waits 9 devices");
  // Its quota does not allow it.
  QueueRules rules;
  rules.quotas[Account::Of("bob", "")] = 1;
  EXPECT_EQ(Decide(StateOf(0, {Preemptible(Holds(1, 2))}, {By(Waits(9, 2, 1), "bob")}), rules),
            "waits 9 quota");
  // One before it that cannot start reserves them.
  EXPECT_EQ(
      Decide(StateOf(0, {Preemptible(Holds(1, 2)), Holds(2, 2)}, {Waits(8, 4, 2), Waits(9, 2, 1)})),
      "waits 8 devices, 9 devices");
}

TEST(PlaceJobsTest, NobodyIsPreemptedWhoseOwnerHasAJobBeforeThatWaitsForTheQuota) {
  // Without job 1, job 8 would be within its quota, and reserve all devices.
  QueueRules rules;
  rules.quotas[Account::Of("ann", "")] = 4;
  EXPECT_EQ(Decide(StateOf(0, {Preemptible(Holds(1, 2)), By(Holds(2, 4), "cy")},
                           {Waits(8, 4, 3), By(Waits(9, 2, 1), "bob")}),
                   rules),
            "waits 8 quota, 9 devices");
}

TEST(PlaceJobsTest, AnOwnersOwnJobMakesRoomInItsQuota) {
  QueueRules rules;
  rules.quotas[Account::Of("ann", "")] = 2;
  EXPECT_EQ(Decide(StateOf(4, {Preemptible(Holds(1, 2)), By(Preemptible(Holds(2, 2)), "bob")},
                           {Waits(9, 2, 1)}),
                   rules),
            "preempts 1 for 9 | waits 9 room");
}

TEST(PlaceJobsTest, AJobThatIsBeingStoppedIsNotStoppedTwiceAndNoOtherForIt) {
  QueueState state =
      StateOf(0, {Preemptible(Holds(1, 2)), Preemptible(Holds(2, 2))}, {Waits(9, 2, 1)});
  state.holding[0].room_for = 9;
  const QueueDecision decision = PlaceJobs(state, {});
  EXPECT_EQ(ToText(decision), "waits 9 room");
  EXPECT_EQ(decision.queued[0].text, "waits for jobs/1 to save its state and make room");
  // Another job needs the rest.
  state.waiting.push_back(Waits(10, 2, 1));
  EXPECT_EQ(Decide(state), "preempts 2 for 10 | waits 9 room, 10 room");
}

TEST(PlaceJobsTest, AJobThatRoomWasMadeForGoesFirstInItsPriority) {
  QueueState state = StateOf(2, {Holds(8, 2)}, {Waits(9, 2), By(Waits(10, 2), "bob")});
  EXPECT_EQ(Decide(state), "starts 10:2 | waits 9 devices");
  state.waiting[0].room_made = true;
  EXPECT_EQ(Decide(state), "starts 9:2 | waits 10 devices");
  // One before it that takes what is free leaves it its devices.
  state = StateOf(4, {}, {Waits(8, 1, 1), Waits(9, 2)});
  state.waiting[0].most = 4;
  state.waiting[1].room_made = true;
  EXPECT_EQ(Decide(state), "starts 8:2, 9:2");
  QueueRules rules;
  rules.quotas[Account::Of("ann", "")] = 3;
  state.devices.free = 6;
  EXPECT_EQ(Decide(state, rules), "starts 8:1, 9:2");
}

TEST(PlaceJobsTest, AJobIsSparedThatNobodyNeedsToStopAnyMore) {
  QueueState state = StateOf(0, {Preemptible(Holds(1, 2))}, {});
  state.holding[0].room_for = 9;
  EXPECT_EQ(Decide(state), "spares 1");  // Job 9 was cancelled.
  state.waiting = {Waits(9, 2, 1)};
  state.devices.free = 2;
  EXPECT_EQ(Decide(state), "starts 9:2 | spares 1");
}

TEST(PlaceJobsTest, AJobThatIsHeldBackKeepsItsPlace) {
  QueueState state = StateOf(2, {}, {Waits(1, 2), Waits(2, 1), Waits(3, 1)});
  state.waiting[0].held_back = true;
  EXPECT_EQ(Decide(state), "waits 1 held_back, 2 behind, 3 behind");
  state.devices.free = 3;
  EXPECT_EQ(Decide(state), "starts 2:1 | waits 1 held_back, 3 behind");
}

TEST(PlaceJobsTest, AJobThatIsHeldBackKeepsAsManyDevicesAsItWouldStartWith) {
  QueueState state = StateOf(5, {}, {Waits(1, 1, 1), Waits(2, 1)});
  state.waiting[0].held_back = true;
  state.waiting[0].most = 5;
  EXPECT_EQ(Decide(state), "waits 1 held_back, 2 behind");
  state.waiting[0].most = 4;
  EXPECT_EQ(Decide(state), "starts 2:1 | waits 1 held_back");
}

TEST(PlaceJobsTest, AJobWhoseWorkersMayBeBackSoonHoldsUpThoseBehindIt) {
  QueueState state = StateOf(2, {Preemptible(Holds(9, 1))}, {Waits(1, 4, 1), Waits(2, 2)});
  EXPECT_EQ(Decide(state), "starts 2:2 | waits 1 too_few");
  state.waiting[0].awaits_workers = true;
  EXPECT_EQ(Decide(state), "waits 1 too_few, 2 behind");
  state.waiting[1] = Preemptible(Waits(2, 2));
  EXPECT_EQ(Decide(state), "starts 2:2 | waits 1 too_few");
  // Its own quota keeps it from starting: they go on.
  state.waiting[1] = By(Waits(2, 2), "bob");
  QueueRules rules;
  rules.quotas[Account::Of("ann", "")] = 4;
  EXPECT_EQ(Decide(state, rules), "starts 2:2 | waits 1 too_few");
}

TEST(PlaceJobsTest, SaysPlaceAndReason) {
  QueueState state = StateOf(2, {Holds(9, 2)}, {Waits(1, 4, 10), Waits(2, 1), Waits(3, 1)});
  state.devices.cordoned = 1;
  const QueueDecision decision = PlaceJobs(state, {});
  ASSERT_EQ(decision.queued.size(), 3u);
  EXPECT_EQ(decision.queued[0].text, "waits for 4 free devices: 2 are free, 1 is cordoned");
  EXPECT_EQ(decision.queued[2].position, 3);
  EXPECT_EQ(decision.queued[2].text, "3rd in the queue behind jobs/1 (priority 10)");
}

}  // namespace
}  // namespace stagewright
