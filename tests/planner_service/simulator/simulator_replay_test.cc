// Properties of the simulator over random programs.
#include <gtest/gtest.h>

#include <map>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/lowering/lower.h"
#include "common/program/trace.h"
#include "planner_service/simulator/measured_durations.h"
#include "planner_service/simulator/model_durations.h"
#include "planner_service/simulator/simulator.h"
#include "tests/support/clusters.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::Uniform;

struct Case {
  Graph graph;
  Cluster cluster;
  std::unique_ptr<CostModel> costs;
  Program program;
};

// A lowered random strategy; nullopt where a tensor would have to be split.
std::optional<Case> RandomCase(Rng& random) {
  Graph graph = Uniform(random, 0, 1) == 0
                    ? testing::RandomProfile(random, static_cast<int32_t>(Uniform(random, 1, 30)))
                    : testing::RandomNetwork(random, static_cast<int32_t>(Uniform(random, 1, 30)));
  Case result{std::move(graph), testing::RandomCluster(random, 12), nullptr, {}};
  result.costs = MakeAnalyticCostModel(result.graph);
  const OperatorGraph operators = OneOperatorPerNode(result.graph).value();
  Strategy strategy = testing::RandomStrategy(random, result.graph, operators, result.cluster,
                                              Uniform(random, 1, 24));
  const bool forced = Uniform(random, 0, 1) == 0;  // Into buckets, whatever is best.
  if (forced) strategy.bucket_bytes = Bytes(Uniform(random, 1, 10'000));
  auto program =
      Lower(result.graph, strategy, *result.costs, {.posting = {}, .cluster = &result.cluster});
  if (absl::IsInvalidArgument(program.status())) return std::nullopt;
  EXPECT_TRUE(program.ok()) << program.status();
  result.program = *std::move(program);
  return result;
}

void ExpectCriticalPath(const Simulation& simulation) {
  ASSERT_FALSE(simulation.critical_path.empty());
  Nanos now = 0;
  for (const TraceEvent& event : simulation.critical_path) {
    EXPECT_EQ(event.start, now) << ToString(event.action);
    now = event.end;
  }
  EXPECT_EQ(now, simulation.step_time);
}

void ExpectReplay(const Case& test, const Simulation& simulation) {
  auto measured = MakeMeasuredDurations(test.program, simulation.timeline, 0);
  ASSERT_TRUE(measured.ok()) << measured.status();
  auto again = Simulate(test.program, **measured, {.timeline = true});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->step_time, simulation.step_time);
  EXPECT_EQ(again->timeline, simulation.timeline);
  EXPECT_EQ(again->critical_path, simulation.critical_path);
}

TEST(SimulatorReplayTest, ReplayingATimelineGivesTheSameTimeline) {
  Rng random(11);
  int cases = 0;
  int contended = 0;
  int overlapping = 0;
  while (cases < 300) {
    const auto test = RandomCase(random);
    if (!test) continue;
    ++cases;
    SCOPED_TRACE(cases);
    const auto durations = MakeModelDurations(test->graph, test->program, test->cluster,
                                              *test->costs, Optimizer::kAdam);
    auto simulation = Simulate(test->program, *durations, {.timeline = true});
    ASSERT_TRUE(simulation.ok()) << simulation.status();
    const absl::Status trace = CheckTrace(test->program, simulation->timeline);
    ASSERT_TRUE(trace.ok()) << trace;
    ExpectCriticalPath(*simulation);
    ExpectReplay(*test, *simulation);
    for (const TraceEvent& sum : simulation->timeline) {
      if (sum.action.kind != ActionKind::kAllReduce) continue;
      overlapping += std::any_of(
          simulation->timeline.begin(), simulation->timeline.end(), [&](const TraceEvent& pass) {
            return pass.device == sum.device && pass.action.stage == sum.action.stage &&
                   pass.action.kind == ActionKind::kBackward && pass.start < sum.start &&
                   sum.start < pass.end;
          });
    }
    // Some transfers must have shared a link, or this test says little.
    for (const TraceEvent& event : simulation->timeline) {
      if (!IsSend(event.action.kind)) continue;
      const auto transfer = durations->TransferOf(event.action);
      double rate = 1e30;
      for (int32_t link : transfer.links) {
        rate = std::min(rate, test->cluster.links()[link].bytes_per_second);
      }
      const double alone =
          static_cast<double>(transfer.latency) + static_cast<double>(transfer.bytes) / rate * 1e9;
      // The event lasts longer when its receive was late, too; count clear cases only.
      if (static_cast<double>(event.end - event.start) > 1.5 * alone + 10) ++contended;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(contended, 100);
  EXPECT_GT(overlapping, 100) << "sums that start within the backward pass of their stage";
}

TEST(SimulatorReplayTest, SimulationIsDeterministic) {
  Rng random(12);
  for (int i = 0; i < 50; ++i) {
    const auto test = RandomCase(random);
    if (!test) continue;
    const auto durations = MakeModelDurations(test->graph, test->program, test->cluster,
                                              *test->costs, Optimizer::kSgd);
    const auto first = Simulate(test->program, *durations, {.timeline = true});
    const auto second = Simulate(test->program, *durations, {.timeline = true});
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->timeline, second->timeline);
    EXPECT_EQ(first->critical_path, second->critical_path);
    // Without a timeline the figures are the same.
    const auto quick = Simulate(test->program, *durations, {});
    EXPECT_EQ(quick->step_time, first->step_time);
    EXPECT_TRUE(quick->timeline.empty());
  }
}

// A device is never busy longer than the step, and the step is never shorter than any chain of
// compute on one device.
TEST(SimulatorReplayTest, BusyTimeIsTheSumOfComputeAndFitsTheStep) {
  Rng random(13);
  for (int i = 0; i < 50; ++i) {
    const auto test = RandomCase(random);
    if (!test) continue;
    const auto durations = MakeModelDurations(test->graph, test->program, test->cluster,
                                              *test->costs, Optimizer::kAdam);
    const auto simulation = Simulate(test->program, *durations, {.timeline = true});
    ASSERT_TRUE(simulation.ok()) << simulation.status();
    std::map<int32_t, Nanos> busy;
    for (const TraceEvent& event : simulation->timeline) {
      if (IsCompute(event.action.kind)) busy[event.device.value()] += event.end - event.start;
    }
    for (const DeviceUse& device : simulation->devices) {
      EXPECT_EQ(device.busy, busy[device.device.value()]);
      EXPECT_LE(device.busy, simulation->step_time);
    }
  }
}

}  // namespace
}  // namespace stagewright
