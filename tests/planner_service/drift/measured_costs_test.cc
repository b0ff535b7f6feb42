#include "planner_service/drift/measured_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/measured/operator_signature.h"
#include "common/cost/measured/profiled_model.h"
#include "tests/planner_service/drift/drift_case.h"

namespace stagewright {
namespace {

using testing::DriftCase;

class MeasuredCostsTest : public ::testing::Test {
 protected:
  MeasuredCosts Correct(const std::function<double(const TraceEvent&)>& slower,
                        const std::vector<TimedOperator>& operators = {}) const {
    const auto actions =
        CompareTimes(case_.program, case_.predicted, case_.Steps(3, slower), case_.OneClock);
    return CostsAsMeasured(
        {case_.graph, case_.program, case_.cluster, *case_.costs, profile_, Optimizer::kAdam},
        actions, operators, "steps of jobs/7", "2026-11-22");
  }

  // The step that the corrected costs predict.
  Nanos Predict(const MeasuredCosts& measured) const {
    const auto costs = MakeProfiledCostModel(case_.graph, measured.cluster.kinds(),
                                             measured.profile, MakeAnalyticCostModel(case_.graph));
    const auto durations =
        MakeModelDurations(case_.graph, case_.program, measured.cluster, *costs, Optimizer::kAdam);
    return Simulate(case_.program, *durations, {}).value().step_time;
  }

  const DriftCase case_;
  OperatorProfile profile_;
};

double AsItWas(const TraceEvent&) { return 1; }

TEST_F(MeasuredCostsTest, StepsAsPredictedChangeNothing) {
  const MeasuredCosts measured = Correct(AsItWas);
  const auto before = Simulate(case_.program, *case_.durations, {}).value().step_time;
  EXPECT_NEAR(static_cast<double>(Predict(measured)), static_cast<double>(before),
              0.001 * static_cast<double>(before));
  EXPECT_EQ(measured.cluster.kinds().size(), 1u);
}

TEST_F(MeasuredCostsTest, PassesTakeWhatTheyTook) {
  // All stages alike, so that the same layers take the same time wherever they run.
  const MeasuredCosts measured = Correct([](const TraceEvent& event) {
    return event.action.kind == ActionKind::kBackward ? 3.0 : 1.0;
  });
  const auto costs = MakeProfiledCostModel(case_.graph, measured.cluster.kinds(), measured.profile,
                                           MakeAnalyticCostModel(case_.graph));
  const DeviceKind& kind = measured.cluster.kind_of(DeviceId(0));
  for (int32_t v = 0; v < case_.graph.size(); ++v) {
    const OperatorTime was = case_.costs->Time(NodeId(v), case_.cluster.kinds()[0], 4);
    const OperatorTime is = costs->Time(NodeId(v), kind, 4);
    EXPECT_NEAR(static_cast<double>(is.forward), static_cast<double>(was.forward), 2);
    EXPECT_NEAR(static_cast<double>(is.backward), 3 * static_cast<double>(was.backward), 10);
  }
}

TEST_F(MeasuredCostsTest, ADeviceThatIsSlowerAtTheSameWorkIsAKindOfItsOwn) {
  // Both replicas of stage 1 run the same layers.
  const MeasuredCosts measured = Correct([](const TraceEvent& event) {
    return event.device == DeviceId(2) && IsCompute(event.action.kind) ? 2.0 : 1.0;
  });
  const DeviceKind& slow = measured.cluster.kind_of(DeviceId(2));
  EXPECT_THAT(slow.name, ::testing::HasSubstr("@" + case_.cluster.device(DeviceId(2)).name));
  const auto costs = MakeProfiledCostModel(case_.graph, measured.cluster.kinds(), measured.profile,
                                           MakeAnalyticCostModel(case_.graph));
  const auto other = costs->Time(NodeId(2), measured.cluster.kind_of(DeviceId(1)), 2);
  const auto own = costs->Time(NodeId(2), slow, 2);
  EXPECT_NEAR(static_cast<double>(own.forward) / static_cast<double>(other.forward), 2, 0.1);
}

TEST_F(MeasuredCostsTest, WhatWasMeasuredByItselfSaysThatTheDeviceIsSlow) {
  MeasuredOperators& known = profile_.devices[{case_.cluster.kinds()[0].name, "torch"}];
  for (int32_t v = 0; v < case_.graph.size(); ++v) {
    const OperatorTime time = case_.costs->Time(NodeId(v), case_.cluster.kinds()[0], 4);
    known[SignatureOf(case_.graph, NodeId(v))] = {
        "2026-11-20",
        {{4, time.forward, time.backward, time.backward_input, time.backward_weight, 0, 0}}};
  }
  const MeasuredCosts measured = Correct([](const TraceEvent& event) {
    return event.device == DeviceId(0) && IsCompute(event.action.kind) ? 2.0 : 1.0;
  });
  EXPECT_THAT(measured.cluster.kind_of(DeviceId(0)).name, ::testing::HasSubstr("@"));
  EXPECT_THAT(measured.cluster.kind_of(DeviceId(1)).name,
              ::testing::Not(::testing::HasSubstr("@")));
}

TEST_F(MeasuredCostsTest, TimedOperatorsShareThePassAsTheyTook) {
  std::vector<TimedOperator> timed;
  for (int32_t v = 0; v < 2; ++v) {
    const OperatorTime time = case_.costs->Time(NodeId(v), case_.cluster.kinds()[0], 4);
    timed.push_back({DeviceId(0), StageId(0), NodeId(v), 4, time.forward, time.backward});
  }
  const MeasuredCosts measured = Correct(AsItWas, timed);
  const auto before = Simulate(case_.program, *case_.durations, {}).value().step_time;
  EXPECT_NEAR(static_cast<double>(Predict(measured)), static_cast<double>(before),
              0.001 * static_cast<double>(before));
}

TEST_F(MeasuredCostsTest, FixedCostsOfPassesAreMeasuredToo) {
  ClusterData data = case_.cluster.data();
  data.kinds[0].pass_overhead = 50 * kMicrosecond;
  const Cluster cluster = Cluster::Create(data).value();
  const auto durations =
      MakeModelDurations(case_.graph, case_.program, cluster, *case_.costs, Optimizer::kAdam);
  const auto predicted = Simulate(case_.program, *durations, {.timeline = true}).value().timeline;
  auto actions = CompareTimes(case_.program, predicted, predicted, case_.OneClock);
  for (ActionTimes& times : actions) times.measured = times.predicted / 4;
  std::vector<TimedOperator> timed;
  for (const bool with_operators : {false, true}) {
    const MeasuredCosts measured = CostsAsMeasured(
        {case_.graph, case_.program, cluster, *case_.costs, profile_, Optimizer::kAdam}, actions,
        timed, "steps of jobs/7", "2026-11-22");
    const auto costs = MakeProfiledCostModel(case_.graph, measured.cluster.kinds(),
                                             measured.profile, MakeAnalyticCostModel(case_.graph));
    const auto after =
        MakeModelDurations(case_.graph, case_.program, measured.cluster, *costs, Optimizer::kAdam);
    for (const ActionTimes& times : actions) {
      const ActionGroup& group = times.group;
      if (group.kind != ActionKind::kForward && group.kind != ActionKind::kBackward) continue;
      const Action pass{group.kind, group.stage, {0, group.samples}, -1};
      EXPECT_NEAR(static_cast<double>(after->Of(group.device, pass)),
                  static_cast<double>(times.measured), 0.15 * static_cast<double>(times.measured));
    }
    // As predicted, so that all that was saved was saved beside them.
    for (TimedOperator one : ExpectedOperators(case_.program, cluster, *case_.costs)) {
      if (one.stage == StageId(1)) {
        timed.push_back(one);
        one.device = DeviceId(2);
      }
      timed.push_back(one);
    }
    if (!with_operators) continue;
    EXPECT_NEAR(static_cast<double>(costs->Time(NodeId(1), measured.cluster.kinds()[0], 4).forward),
                static_cast<double>(case_.costs->Time(NodeId(1), cluster.kinds()[0], 4).forward),
                2);
  }
}

TEST_F(MeasuredCostsTest, LinksTakeWhatMessagesTook) {
  auto actions = CompareTimes(case_.program, case_.predicted, case_.predicted, case_.OneClock);
  for (ActionTimes& times : actions) {
    if (IsSend(times.group.kind)) times.measured = times.predicted * 2;
  }
  const MeasuredCosts measured = CostsAsMeasured(
      {case_.graph, case_.program, case_.cluster, *case_.costs, profile_, Optimizer::kAdam},
      actions, {}, "steps of jobs/7", "2026-11-22");
  const Route& was = case_.cluster.route(DeviceId(0), DeviceId(1));
  const Route& is = measured.cluster.route(DeviceId(0), DeviceId(1));
  EXPECT_NEAR(static_cast<double>(is.TransferTime(kMiB)),
              2 * static_cast<double>(was.TransferTime(kMiB)),
              0.02 * static_cast<double>(was.TransferTime(kMiB)));
}

TEST_F(MeasuredCostsTest, ExpectsOfOperatorsWhatTheirStagesAreMadeOf) {
  const auto expected = ExpectedOperators(case_.program, case_.cluster, *case_.costs);
  ASSERT_EQ(expected.size(), 5u);  // Each node in its stage; replicas are of one kind.
  for (const TimedOperator& one : expected) {
    const auto time = case_.costs->Time(one.node, case_.cluster.kinds()[0], one.samples);
    EXPECT_EQ(one.forward, time.forward);
    EXPECT_EQ(one.samples, one.stage == StageId(0) ? 4 : 2);
  }
}

}  // namespace
}  // namespace stagewright
