// What the papers say about their schedules, by simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/lowering/lower.h"
#include "common/policies/breadth_first.h"
#include "common/policies/looped.h"
#include "common/policies/zero_bubble.h"
#include "common/program/unroll.h"
#include "common/strategy/check_strategy.h"
#include "common/strategy/orders.h"
#include "common/validation/validate.h"
#include "planner_service/simulator/model_durations.h"
#include "planner_service/simulator/simulator.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::ProfiledChain;

constexpr Nanos kUs = 1000;
// Bytes per second: a message takes the nanosecond it is rounded to.
constexpr double kFast = 1e15;

enum class Schedule { k1F1B, kGPipe, kBreadthFirst, kMegatron, kH1, kV };

// A chain of equal layers, `loops` stages on each device. In a V every second pass over the devices
// is reversed.
struct Chain {
  int32_t devices = 4;
  int32_t loops = 1;
  int64_t micro_batches = 8;
  Nanos latency = 0;
  testing::Work layer = {10 * kUs, 20 * kUs, 8, 4};
};

Strategy Stages(const Chain& chain, const Graph& graph, Schedule schedule) {
  std::vector<std::vector<int32_t>> groups, places;
  for (int32_t s = 0; s < chain.devices * chain.loops; ++s) {
    groups.push_back({s});
    const int32_t place = s % chain.devices;
    const bool back = schedule == Schedule::kV && (s / chain.devices) % 2 == 1;
    places.push_back({back ? chain.devices - 1 - place : place});
  }
  return testing::MakeStrategy(graph, groups, places, chain.micro_batches, 1);
}

absl::StatusOr<std::vector<DeviceOrder>> Orders(const Graph& graph, const Strategy& strategy,
                                                int64_t devices, Schedule schedule) {
  LoopedSchedule looped{devices, {}};
  for (int64_t d = devices - 1; d >= 0; --d) looped.prefetch.push_back(d);
  switch (schedule) {
    case Schedule::kBreadthFirst:
      return BreadthFirstOrders(graph, strategy);
    case Schedule::kMegatron:
      return LoopedOrders(graph, strategy, looped);
    case Schedule::kH1:
      return ZeroBubbleH1Orders(graph, strategy);
    case Schedule::kV:
      return ZeroBubbleVOrders(graph, strategy);
    default:
      return std::vector<DeviceOrder>();
  }
}

Simulation Run(const Chain& chain, Schedule schedule) {
  const Graph graph = ProfiledChain(chain.devices * chain.loops, chain.layer);
  const Cluster cluster = FlatCluster(chain.devices, kGiB, chain.latency, kFast);
  Strategy strategy = Stages(chain, graph, schedule);
  auto orders = Orders(graph, strategy, chain.devices, schedule);
  EXPECT_EQ(orders.status(), absl::OkStatus());
  if (!orders->empty()) SetOrders(graph, *std::move(orders), strategy);
  if (schedule == Schedule::kGPipe) {
    for (Stage& stage : strategy.stages) stage.schedule.in_flight = strategy.mini_batch;
  }
  EXPECT_EQ(CheckStrategy(graph, cluster, strategy), absl::OkStatus());
  const auto costs = MakeAnalyticCostModel(graph);
  const Program program = Lower(graph, strategy, *costs, {Optimizer::kSgd, true}).value();
  EXPECT_EQ(Validate(program, {}), absl::OkStatus());
  const auto durations = MakeModelDurations(graph, program, cluster, *costs, Optimizer::kSgd);
  return Simulate(program, *durations, {.timeline = true}).value();
}

// Microseconds in which a device does nothing between the first forward and the last backward of
// all.
int64_t Bubble(const Chain& chain, Schedule schedule) {
  const Simulation simulation = Run(chain, schedule);
  Nanos end = 0;
  for (const TraceEvent& event : simulation.timeline) {
    if (IsCompute(event.action.kind) && event.action.kind != ActionKind::kOptimizerStep)
      end = std::max(end, event.end);
  }
  const Nanos work =
      chain.micro_batches * chain.loops * (chain.layer.forward + chain.layer.backward);
  return (end - work + kUs / 2) / kUs;
}

Bytes Peak(const Chain& chain, Schedule schedule) {
  Bytes peak = 0;
  for (const DeviceUse& use : Run(chain, schedule).devices) peak = std::max(peak, use.peak_memory);
  return peak;
}

TEST(Schedules, PfeifesFigure2StartsTheSecondForwardAt31) {
  const Graph graph = testing::ProfiledGraph({{15, 30, 0, 0, {}}, {10, 20, 0, 0, {0}}});
  const Cluster cluster = FlatCluster(2, kGiB, /*latency=*/1);
  Strategy strategy = testing::MakeStrategy(graph, {{0}, {1}}, {{0}, {1}}, 2, 1);
  SetOrders(graph, *LoopedOrders(graph, strategy, {2, {0, 1}}), strategy);
  const auto costs = MakeAnalyticCostModel(graph);
  const Program program = Lower(graph, strategy, *costs, {Optimizer::kSgd, true}).value();
  const auto durations = MakeModelDurations(graph, program, cluster, *costs, Optimizer::kSgd);
  const Simulation simulation = Simulate(program, *durations, {.timeline = true}).value();
  const Action second{ActionKind::kForward, StageId(1), {1, 2}, -1};
  const auto event = std::find_if(simulation.timeline.begin(), simulation.timeline.end(),
                                  [&](const TraceEvent& e) { return e.action == second; });
  ASSERT_NE(event, simulation.timeline.end());
  EXPECT_EQ(event->start, 31);
}

TEST(Schedules, DappleHasTheBubbleOfGPipeAndItsMemoryDoesNotGrow) {
  for (int32_t devices : {2, 4, 6}) {
    Chain chain{.devices = devices, .micro_batches = devices};
    const Bytes least = Peak(chain, Schedule::k1F1B);
    Bytes gpipe = Peak(chain, Schedule::kGPipe);
    EXPECT_GE(gpipe, least);
    for (int64_t micro_batches : {2 * devices, 4 * devices, 8 * devices}) {
      chain.micro_batches = micro_batches;
      EXPECT_EQ(Bubble(chain, Schedule::k1F1B), (devices - 1) * 30);
      EXPECT_EQ(Bubble(chain, Schedule::kGPipe), (devices - 1) * 30);
      EXPECT_EQ(Peak(chain, Schedule::k1F1B), least);
      const Bytes grown = Peak(chain, Schedule::kGPipe);
      EXPECT_GE(grown, gpipe + Bytes(devices * 8));  // A layer keeps 8 bytes of a micro-batch.
      gpipe = grown;
    }
  }
}

// Narayanan et al. 2021: v loops make the bubble v times smaller.
TEST(Schedules, InterleavingDividesTheBubble) {
  const Chain plain{
      .devices = 4, .loops = 1, .micro_batches = 8, .layer = {20 * kUs, 40 * kUs, 8, 4}};
  const Chain looped{
      .devices = 4, .loops = 2, .micro_batches = 8, .layer = {10 * kUs, 20 * kUs, 8, 4}};
  EXPECT_EQ(Bubble(plain, Schedule::k1F1B), 3 * 60);
  EXPECT_EQ(Bubble(looped, Schedule::kMegatron), 3 * 30);
  EXPECT_EQ(Bubble(looped, Schedule::kBreadthFirst), 3 * 30);
  // Breadth-first pays with memory.
  EXPECT_GT(Peak(looped, Schedule::kBreadthFirst), Peak(looped, Schedule::kMegatron));
}

// Qi et al. 2024, table 2: 1F1B idles (p - 1)(F + I + W), ZB-H1 (p - 1)(F + I - W).
TEST(Schedules, ZeroBubbleH1IdlesLessThan1F1B) {
  for (int32_t devices : {2, 4, 6}) {
    const Chain chain{.devices = devices, .micro_batches = 3 * devices};
    EXPECT_EQ(Bubble(chain, Schedule::k1F1B), (devices - 1) * (10 + 10 + 10));
    EXPECT_EQ(Bubble(chain, Schedule::kH1), (devices - 1) * (10 + 10 - 10));
  }
}

// V idles only until the first micro-batch has come to the last device.
TEST(Schedules, ZeroBubbleVIdlesLeast) {
  for (int32_t devices : {2, 4, 6}) {
    const Chain half{.devices = devices,
                     .loops = 2,
                     .micro_batches = 3 * devices,
                     .layer = {5 * kUs, 10 * kUs, 8, 4}};
    const Chain whole{.devices = devices, .micro_batches = 3 * devices};
    EXPECT_LE(Bubble(half, Schedule::kV), Bubble(whole, Schedule::kH1));
    EXPECT_LT(Bubble(half, Schedule::kV), Bubble(half, Schedule::kMegatron));
  }
}

// PipeDream: the pipeline is never flushed, so a step takes the work of the slowest stage.
TEST(Schedules, AsynchronousStepsHaveNoBubble) {
  for (int32_t devices : {1, 3, 5}) {
    const Graph graph = ProfiledChain(devices, {10 * kUs, 20 * kUs, 8, 0});
    const Cluster cluster = FlatCluster(devices, kGiB, 0, kFast);
    std::vector<std::vector<int32_t>> one;
    for (int32_t s = 0; s < devices; ++s) one.push_back({s});
    Strategy strategy = testing::MakeStrategy(graph, one, one, 6, 1);
    const auto costs = MakeAnalyticCostModel(graph);
    const auto step_time = [&] {
      EXPECT_EQ(CheckStrategy(graph, cluster, strategy), absl::OkStatus());
      const Program program = Lower(graph, strategy, *costs, {Optimizer::kSgd, true}).value();
      const auto durations = MakeModelDurations(graph, program, cluster, *costs, Optimizer::kSgd);
      const Simulation simulation = Simulate(program, *durations, {}).value();
      for (const DeviceUse& use : simulation.devices) EXPECT_EQ(use.busy, 6 * 30 * kUs);
      return (simulation.step_time + kUs / 2) / kUs;
    };
    EXPECT_EQ(step_time(), (6 + devices - 1) * 30);
    strategy.asynchronous = true;
    EXPECT_EQ(step_time(), 6 * 30);
  }
}

// The steady state that is reported is that of long runs.
TEST(Schedules, AsynchronousStepTimesAreThoseOfLongRuns) {
  testing::Rng rng(13);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    testing::RandomCase random = testing::MakeUniformCase(rng);
    if (random.shared_devices) continue;
    random.strategy.asynchronous = true;
    const auto costs = MakeAnalyticCostModel(random.graph);
    const Program program = Lower(random.graph, random.strategy, *costs, {}).value();
    const auto durations =
        MakeModelDurations(random.graph, program, random.cluster, *costs, Optimizer::kAdam);
    const auto length = [&](int64_t steps) {
      return static_cast<double>(Simulate(Unroll(program, steps), *durations, {})->step_time);
    };
    const double steady = (length(30) - length(10)) / 20;
    EXPECT_NEAR(static_cast<double>(Simulate(program, *durations, {})->step_time), steady,
                0.01 * steady);
  }
}

// A slow link between two stages stays busy: receives are posted early enough.
TEST(Schedules, ASlowLinkIsNeverIdleInSteadyState) {
  const int64_t micro_batches = 40;
  // A message takes 30 us each way, a micro-batch 20 us on either device.
  const Graph graph = ProfiledChain(2, {10 * kUs, 10 * kUs, 30'000, 0});
  const Cluster cluster = FlatCluster(2, kGiB, 0, 1e9);
  Strategy strategy = testing::MakeStrategy(graph, {{0}, {1}}, {{0}, {1}}, micro_batches, 1);
  strategy.stages[0].schedule.in_flight = 8;
  const auto costs = MakeAnalyticCostModel(graph);
  const Program program = Lower(graph, strategy, *costs, {Optimizer::kSgd, true}).value();
  const auto durations = MakeModelDurations(graph, program, cluster, *costs, Optimizer::kSgd);
  const Simulation simulation = Simulate(program, *durations, {}).value();
  const Nanos fill = 10 * kUs + 20 * kUs + 30 * kUs + 10 * kUs;
  EXPECT_LE(simulation.step_time, micro_batches * 30 * kUs + fill);
}

// Any policy on any graph of stages runs to its end, and no slower than one action at a time.
TEST(Schedules, RandomGraphsSimulate) {
  testing::Rng rng(77);
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE(i);
    testing::RandomCase random = testing::MakeUniformCase(rng);
    const auto devices = static_cast<int64_t>(i % 4 + 1);
    const std::vector<absl::StatusOr<std::vector<DeviceOrder>>> all = {
        LoopedOrders(random.graph, random.strategy, {devices, {}}),
        BreadthFirstOrders(random.graph, random.strategy),
        ZeroBubbleH1Orders(random.graph, random.strategy),
        ZeroBubbleVOrders(random.graph, random.strategy)};
    const auto costs = MakeAnalyticCostModel(random.graph);
    for (const auto& orders : all) {
      ASSERT_EQ(orders.status(), absl::OkStatus());
      SetOrders(random.graph, *orders, random.strategy);
      const Program program = Lower(random.graph, random.strategy, *costs, {}).value();
      const auto durations =
          MakeModelDurations(random.graph, program, random.cluster, *costs, Optimizer::kAdam);
      const auto simulation = Simulate(program, *durations, {});
      ASSERT_EQ(simulation.status(), absl::OkStatus());
      for (const DeviceUse& use : simulation->devices) EXPECT_LE(use.busy, simulation->step_time);
    }
  }
}

}  // namespace
}  // namespace stagewright
