#include "planner_service/planners/graphpipe/pace.h"

#include <gtest/gtest.h>

#include "common/cost/parameters.h"
#include "common/strategy/in_flight.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/graphpipe/build_strategy.h"
#include "tests/planner_service/planners/graphpipe/search_case.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::SearchCase;
using testing::Work;

// One stage per operator on one device each.
Partition OnePerStage(int32_t stages, int64_t micro_batch) {
  Partition partition;
  for (int32_t s = 0; s < stages; ++s) {
    partition.stages.push_back({s, s + 1, 1, {micro_batch, 1}, 0});
  }
  partition.devices = stages;
  return partition;
}

// A layout with samples in flight by AssignInFlight.
Layout InFlight(const SearchCase& c, const Partition& partition) {
  Layout layout = c.Place(partition);
  Strategy strategy = c.Build(partition, layout);
  AssignInFlight(strategy);
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    layout.in_flight[s] = strategy.stages[s].schedule.in_flight;
  }
  return layout;
}

const Work kWork{100 * kMicrosecond, 200 * kMicrosecond, 100 * kKiB, kKiB};

TEST(PaceTest, WithoutMessagesTheEstimateIsTheSimulatedTime) {
  for (int32_t stages = 1; stages <= 5; ++stages) {
    const SearchCase c(testing::ProfiledChain(stages, kWork),
                       testing::FlatCluster(8, 16 * kGiB, 0, 1e18), 16);
    Partition partition = OnePerStage(stages, 2);
    partition.bottleneck = 300e3;
    Layout layout = InFlight(c, partition);
    const Strategy strategy = c.Build(partition, layout);
    const Pace pace = EstimatePace(c.oracle, partition, layout);
    const auto evaluation = Evaluate(c.graph, c.cluster, *c.costs, strategy, {Optimizer::kSgd});
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    EXPECT_NEAR(pace.iteration, static_cast<double>(evaluation->iteration_time),
                0.001 * pace.iteration);
    EXPECT_FALSE(CoverMessages(c.oracle, partition, pace, kGiB, layout));
  }
}

TEST(PaceTest, MoreSamplesInFlightCoverMessages) {
  // A message of a micro-batch of 2 takes 200 us, the stage 600 us.
  const SearchCase c(testing::ProfiledChain(4, kWork),
                     testing::FlatCluster(4, 16 * kGiB, 0, 1024e6), 64);
  Partition partition = OnePerStage(4, 2);
  partition.bottleneck = 300e3;
  const Layout layout = InFlight(c, partition);
  const Strategy plain = c.Build(partition, layout);
  const Pace pace = EstimatePace(c.oracle, partition, layout);
  Layout covered = layout;
  ASSERT_TRUE(CoverMessages(c.oracle, partition, pace, kGiB, covered));
  const Strategy ahead = c.Build(partition, covered);
  const auto slow = Evaluate(c.graph, c.cluster, *c.costs, plain, {Optimizer::kSgd});
  const auto fast = Evaluate(c.graph, c.cluster, *c.costs, ahead, {Optimizer::kSgd});
  ASSERT_TRUE(slow.ok()) << slow.status();
  ASSERT_TRUE(fast.ok()) << fast.status();
  EXPECT_LT(fast->iteration_time, slow->iteration_time);
  EXPECT_NEAR(pace.iteration, static_cast<double>(slow->iteration_time), 0.05 * pace.iteration);
}

TEST(PaceTest, LeastHopeIsTheHopeWithoutLinks) {
  const double slow = 1e6;  // A message of a sample takes 100 ms.
  for (const double rate : {slow, 1e9, 1e18}) {
    SCOPED_TRACE(rate);
    const SearchCase c(testing::ProfiledChain(5, kWork),
                       testing::FlatCluster(8, 16 * kGiB, 0, rate), 16);
    Partition partition = OnePerStage(5, 2);
    partition.stages.back().recompute = true;
    const double hope = EstimatePace(c.oracle, partition, c.Place(partition)).hope;
    const double least =
        LeastHope(c.oracle, partition, StageEdges(c.oracle, partition, StrategyKind::kGraph));
    if (rate == slow) {
      EXPECT_LT(least, hope / 2);
    } else {
      EXPECT_EQ(least, hope);
    }
  }
}

TEST(PaceTest, FollowsTheRuleOfPosting) {
  const SearchCase c(testing::ProfiledChain(4, kWork),
                     testing::FlatCluster(4, 16 * kGiB, 0, 1024e6), 64);
  const Partition partition = OnePerStage(4, 2);
  Layout layout = c.Place(partition);
  for (size_t s = 0; s < 4; ++s) layout.in_flight[s] = static_cast<int64_t>(4 * (4 - s));
  const Strategy strategy = c.Build(partition, layout);
  std::vector<double> times;
  for (int32_t ahead : {1, 2, 4}) {
    EvaluateOptions options{Optimizer::kSgd};
    options.posting = {ahead};
    times.push_back(EstimatePace(c.oracle, partition, layout, {ahead}).iteration);
    const auto evaluation = Evaluate(c.graph, c.cluster, *c.costs, strategy, options);
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    EXPECT_NEAR(times.back(), static_cast<double>(evaluation->iteration_time), 0.1 * times.back())
        << ahead;
  }
  EXPECT_GT(times.front(), 1.1 * times.back());
}

TEST(PaceTest, CoveringMessagesStaysWithinMemory) {
  const SearchCase c(testing::ProfiledChain(4, kWork),
                     testing::FlatCluster(4, 16 * kGiB, 0, 1024e6), 64);
  Partition partition = OnePerStage(4, 2);
  partition.bottleneck = 300e3;
  const Layout layout = InFlight(c, partition);
  const Strategy plain = c.Build(partition, layout);
  const Pace pace = EstimatePace(c.oracle, partition, layout);
  for (Bytes memory = 1 * kMiB; memory < 8 * kMiB; memory += 100 * kKiB) {
    Layout covered = layout;
    if (!CoverMessages(c.oracle, partition, pace, memory, covered)) continue;
    const Strategy ahead = c.Build(partition, covered);
    const auto evaluation = Evaluate(c.graph, c.cluster, *c.costs, ahead, {Optimizer::kSgd});
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    for (size_t s = 0; s < ahead.stages.size(); ++s) {
      if (ahead.stages[s].schedule.in_flight == plain.stages[s].schedule.in_flight) continue;
      EXPECT_LE(evaluation->stages[s].peak_memory, memory);
    }
  }
}

}  // namespace
}  // namespace stagewright
