#include "planner_service/drift/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/planner_service/drift/drift_case.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::SizeIs;

constexpr Nanos kStep = 100 * kMillisecond;

// A device that runs a stage: four passes each way and an update, of which it is predicted to take
// `predicted` in a step, and takes `times` as long.
struct Runs {
  int device;
  int stage;
  Nanos predicted;
  double times;
};

std::vector<ActionTimes> ActionsOf(const std::vector<Runs>& all) {
  std::vector<ActionTimes> actions;
  for (const Runs& runs : all) {
    for (const auto& [kind, count] :
         {std::pair(ActionKind::kForward, 4), std::pair(ActionKind::kBackward, 4),
          std::pair(ActionKind::kOptimizerStep, 2)}) {
      const Nanos predicted = runs.predicted / 10;
      actions.push_back({{kind, StageId(runs.stage), DeviceId(runs.device), 4, -1},
                         count,
                         0,
                         predicted,
                         Nanos(static_cast<double>(predicted) * runs.times)});
    }
  }
  return actions;
}

// What a job says in which each of some windows is as `all` has it.
Stragglers Named(const std::vector<std::vector<Runs>>& windows) {
  Stragglers state;
  int64_t first = 11;
  for (const std::vector<Runs>& runs : windows) {
    state = After(state, PacesOf(ActionsOf(runs), kStep), first);
    first += 10;
  }
  return state;
}

std::vector<DeviceId> DevicesNamed(const std::vector<Runs>& runs) {
  std::vector<DeviceId> devices;
  for (const auto& [device, slow] : Named({runs, runs}).named) devices.push_back(device);
  return devices;
}

constexpr Nanos kWork = 40 * kMillisecond;

TEST(StragglersTest, APredictionThatIsWrongForAllNamesNobody) {
  for (const double times : {0.1, 1.0, 7.0}) {
    EXPECT_THAT(DevicesNamed({{0, 0, kWork, times}, {1, 1, kWork, times}, {2, 2, kWork, times}}),
                IsEmpty());
  }
  // Nor one that is wrong for a stage, as its replicas show.
  EXPECT_THAT(
      DevicesNamed({{0, 0, kWork, 1}, {1, 0, kWork, 1}, {2, 1, kWork, 5}, {3, 1, kWork, 5}}),
      IsEmpty());
}

TEST(StragglersTest, NamesASlowReplica) {
  const std::vector<Runs> runs = {
      {0, 0, kWork, 3}, {1, 0, kWork, 3 * 1.8}, {2, 1, kWork, 9}, {3, 1, kWork, 9}};
  EXPECT_THAT(DevicesNamed(runs), ElementsAre(DeviceId(1)));
  const SlowDevice slow = Named({runs, runs}).named.at(DeviceId(1));
  EXPECT_NEAR(slow.pace.Times(), 1.8, 1e-6);
  EXPECT_EQ(slow.pace.stage, StageId(0));
  EXPECT_EQ(slow.since_step, 11);
  EXPECT_EQ(
      StragglerText(slow, "w1/cpu0", 25),
      "device w1/cpu0 takes 1.8 times as long as its like (steps 11 to 25): stage 0, busy for "
      "216 ms of a step instead of 120 ms");
  // Two of three, too: the fastest shows what is possible.
  EXPECT_THAT(DevicesNamed({{0, 0, kWork, 1}, {1, 0, kWork, 1.5}, {2, 0, kWork, 1.5}}),
              ElementsAre(DeviceId(1), DeviceId(2)));
}

TEST(StragglersTest, BesideReplicasAQuarterIsMuch) {
  EXPECT_THAT(DevicesNamed({{0, 0, kWork, 1}, {1, 0, kWork, 1.26}}), ElementsAre(DeviceId(1)));
  EXPECT_THAT(DevicesNamed({{0, 0, kWork, 1}, {1, 0, kWork, 1.24}}), IsEmpty());
}

TEST(StragglersTest, NamesTheDeviceOfASlowStageByThePrediction) {
  for (const double usual : {0.4, 1.0, 3.0}) {
    EXPECT_THAT(
        DevicesNamed({{0, 0, kWork, usual}, {1, 1, kWork, usual}, {2, 2, kWork, 2.1 * usual}}),
        ElementsAre(DeviceId(2)));
    EXPECT_THAT(DevicesNamed({{0, 0, kWork, usual}, {1, 1, kWork, 2.1 * usual}}),
                ElementsAre(DeviceId(1)));
    // Predictions of different operators are never that good.
    EXPECT_THAT(DevicesNamed({{0, 0, kWork, usual}, {1, 1, kWork, 1.7 * usual}}), IsEmpty());
  }
}

TEST(StragglersTest, SlowKindsAreHeldAgainstTheirPrediction) {
  // The second device is of a kind three times as slow, and was planned as such.
  EXPECT_THAT(DevicesNamed({{0, 0, kWork / 3, 1.1}, {1, 0, kWork, 1}, {2, 1, kWork, 1}}),
              IsEmpty());
  EXPECT_THAT(DevicesNamed({{0, 0, kWork / 3, 1}, {1, 0, kWork, 2.5}, {2, 1, kWork, 1}}),
              ElementsAre(DeviceId(1)));
  EXPECT_THAT(DevicesNamed({{0, 0, kWork / 3, 2.5}, {1, 0, kWork, 1}, {2, 1, kWork, 1}}),
              ElementsAre(DeviceId(0)));
}

TEST(StragglersTest, DevicesOfSeveralStagesAreReplicasOfThoseThatRunTheSame) {
  // Device 1 runs the stages of device 0, device 2 one of them.
  std::vector<Runs> runs = {{0, 0, kWork / 2, 1}, {0, 1, kWork / 2, 1},   {1, 0, kWork / 2, 1},
                            {1, 1, kWork / 2, 2}, {2, 0, kWork / 2, 1.5}, {3, 2, kWork, 1.5}};
  EXPECT_THAT(DevicesNamed(runs), ElementsAre(DeviceId(1)));
  EXPECT_EQ(Named({runs, runs}).named.at(DeviceId(1)).pace.stage, StageId(1));
}

TEST(StragglersTest, TinyWorkIsNeverNamedNorHeldAgainstOthers) {
  const Nanos tiny = kStep / 100;
  EXPECT_THAT(DevicesNamed({{0, 0, kWork, 1}, {1, 1, kWork, 1}, {2, 2, tiny, 4}}), IsEmpty());
  EXPECT_THAT(DevicesNamed({{0, 0, kWork, 1}, {1, 1, tiny, 0.1}, {2, 2, tiny, 0.1}}), IsEmpty());
  EXPECT_THAT(DevicesNamed({{0, 0, tiny, 1}, {1, 0, tiny, 4}}), IsEmpty());
  EXPECT_THAT(DevicesNamed({{0, 0, kWork, 1}}), IsEmpty());
  EXPECT_THAT(PacesOf({}, kStep), IsEmpty());
}

TEST(StragglersTest, HoweverSlowItIsOthersAreNotTinyBesideIt) {
  const std::vector<Runs> runs = {{0, 0, kWork, 1}, {1, 0, kWork, 100}};
  EXPECT_THAT(DevicesNamed(runs), ElementsAre(DeviceId(1)));
  const std::vector<Runs> without = {{0, 0, kWork, 1}, {2, 1, kWork, 1}};
  EXPECT_THAT(Named({runs, runs, without}).named, ElementsAre(Key(DeviceId(1))));
}

TEST(StragglersTest, OneWindowIsNotEnoughAndALittleLessIsNotOver) {
  const auto with = [](double times) {
    return std::vector<Runs>{{0, 0, kWork, 1}, {1, 0, kWork, times}};
  };
  EXPECT_THAT(Named({with(1.5)}).named, IsEmpty());
  EXPECT_THAT(Named({with(1.5)}).suspects, ElementsAre(Key(DeviceId(1))));
  EXPECT_THAT(Named({with(1.5), with(1), with(1.5)}).named, IsEmpty());
  EXPECT_THAT(Named({with(1.5), with(1.5), with(1.2), with(1.16)}).named,
              ElementsAre(Key(DeviceId(1))));
  EXPECT_THAT(Named({with(1.2), with(1.2), with(1.2)}).named, IsEmpty());
  const Stragglers over = Named({with(1.5), with(1.5), with(1.14)});
  EXPECT_THAT(over.named, IsEmpty());
  EXPECT_THAT(over.suspects, IsEmpty());
  EXPECT_THAT(Named({with(1.5), with(1.5), with(1.14), with(1.5)}).named, IsEmpty());
  const auto again = Named({with(1.5), with(1.5), with(1.14), with(1.5), with(1.7)}).named;
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again.at(DeviceId(1)).since_step, 41);
  EXPECT_NEAR(again.at(DeviceId(1)).pace.Times(), 1.7, 1e-6);
}

TEST(StragglersTest, NoiseOfATenthNamesNobody) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  Stragglers state;
  for (int64_t window = 0; window < 200; ++window) {
    std::vector<Runs> runs;
    for (int device = 0; device < 8; ++device)
      runs.push_back({device, device / 2, kWork, 2 * noise(random)});
    state = After(state, PacesOf(ActionsOf(runs), kStep), 10 * window);
    EXPECT_THAT(state.named, IsEmpty());
  }
}

TEST(StragglersTest, WaitingForOthersMakesNobodySlow) {
  const testing::DriftCase drift;
  const auto slower = [](const TraceEvent& event) {
    if (!IsCompute(event.action.kind)) return 50.0;
    return event.device == DeviceId(2) ? 3.0 : 1.5;
  };
  const auto actions = CompareTimes(drift.program, drift.predicted, drift.Steps(5, slower),
                                    testing::DriftCase::OneClock);
  const std::vector<DevicePace> paces = PacesOf(actions, 0);
  ASSERT_THAT(paces, SizeIs(3));
  EXPECT_NEAR(paces[0].Times(), 1, 0.01);
  EXPECT_NEAR(paces[1].Times(), 0.5, 0.01);  // Beside its slow replica.
  EXPECT_NEAR(paces[2].Times(), 2, 0.01);
  EXPECT_THAT(After(After({}, paces, 1), paces, 11).named, ElementsAre(Key(DeviceId(2))));
}

}  // namespace
}  // namespace stagewright
