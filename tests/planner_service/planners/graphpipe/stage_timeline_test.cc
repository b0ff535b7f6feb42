#include "planner_service/planners/graphpipe/stage_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/strategy/in_flight.h"
#include "planner_service/evaluator/evaluator.h"
#include "tests/planner_service/planners/graphpipe/search_case.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::SearchCase;
using testing::Uniform;
using testing::Work;

// A random partition of the order with samples in flight by AssignInFlight.
Partition RandomPartition(const SearchCase& c, Rng& random, int64_t micro_batch) {
  Partition partition;
  int32_t devices = c.cluster.size();
  for (int32_t begin = 0; begin < c.oracle.size();) {
    const bool last = devices <= 2;
    const auto end =
        last ? c.oracle.size() : static_cast<int32_t>(Uniform(random, begin + 1, c.oracle.size()));
    const int32_t replicas = Uniform(random, 0, 3) == 0 && micro_batch % 2 == 0 ? 2 : 1;
    partition.stages.push_back(
        {begin, end, std::min(replicas, devices), {micro_batch, 1}, micro_batch});
    devices -= partition.stages.back().replicas;
    begin = end;
  }
  const Strategy built = c.Build(partition, c.Place(partition));
  Strategy strategy = built;
  AssignInFlight(strategy);
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    partition.stages[s].in_flight = strategy.stages[s].schedule.in_flight;
  }
  return partition;
}

double Judge(const SearchCase& c, const Strategy& strategy, ReceivePosting posting = {}) {
  EvaluateOptions options{c.problem.optimizer};
  options.posting = posting;
  const auto evaluation = Evaluate(c.graph, c.cluster, *c.costs, strategy, options);
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  return static_cast<double>(evaluation->iteration_time);
}

TEST(StageTimelineTest, WithoutMessagesItIsTheEvaluatorsTime) {
  Rng random(51);
  for (int round = 0; round < 100; ++round) {
    const SearchCase c(testing::RandomProfile(random, 12),
                       testing::FlatCluster(6, 64 * kGiB, 0, 1e18), 16);
    const Partition partition = RandomPartition(c, random, 2);
    const Layout layout = c.Place(partition);
    const double judged = Judge(c, c.Build(partition, layout));
    EXPECT_NEAR(StageTimeline(c.oracle, partition, layout, SearchContext()), judged,
                0.01 * judged + 1000);
  }
}

TEST(StageTimelineTest, WithMessagesItIsCloseToTheEvaluatorsTime) {
  Rng random(52);
  double worst = 0;
  double sum = 0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Work> nodes;
    for (int32_t v = 0; v < 10; ++v) {
      nodes.push_back({Uniform(random, 20, 200) * kMicrosecond,
                       Uniform(random, 20, 400) * kMicrosecond, Uniform(random, 1, 100) * kKiB,
                       kKiB});
      for (int32_t u = 0; u < v; ++u) {
        if (Uniform(random, 0, 3) == 0) nodes[v].after.push_back(u);
      }
    }
    const SearchCase c(testing::ProfiledGraph(nodes),
                       testing::FlatCluster(6, 64 * kGiB, 5 * kMicrosecond, 1e9), 32);
    const Partition partition = RandomPartition(c, random, 2);
    const Layout layout = c.Place(partition);
    const double judged = Judge(c, c.Build(partition, layout));
    const double error =
        std::abs(StageTimeline(c.oracle, partition, layout, SearchContext()) - judged) / judged;
    worst = std::max(worst, error);
    sum += error;
  }
  EXPECT_LT(sum / kRounds, 0.04);
  EXPECT_LT(worst, 0.25);
}

TEST(StageTimelineTest, LongIterationsAreContinuedAtThePaceOfTheFirstMicroBatches) {
  const Work work{100 * kMicrosecond, 200 * kMicrosecond, 10 * kKiB, kKiB};
  for (int64_t mini_batch : {64, 256, 1024, 4096}) {
    const SearchCase c(testing::ProfiledChain(4, work), testing::FlatCluster(4), mini_batch);
    Partition partition;
    for (int32_t s = 0; s < 4; ++s) partition.stages.push_back({s, s + 1, 1, {2, 1}, 2 * (4 - s)});
    const Layout layout = c.Place(partition);
    const double judged = Judge(c, c.Build(partition, layout));
    EXPECT_NEAR(StageTimeline(c.oracle, partition, layout, SearchContext()), judged,
                0.005 * judged);
  }
}

TEST(StageTimelineTest, PerStageMicroBatchesExchangeTheirIntersections) {
  const Work work{100 * kMicrosecond, 200 * kMicrosecond, 10 * kKiB, kKiB};
  const SearchCase c(testing::ProfiledChain(3, work), testing::FlatCluster(3), 24);
  Partition partition;
  partition.stages = {{0, 1, 1, {1, 1}, 10}, {1, 2, 1, {2, 1}, 6}, {2, 3, 1, {4, 1}, 4}};
  const Layout layout = c.Place(partition);
  const double judged = Judge(c, c.Build(partition, layout));
  EXPECT_NEAR(StageTimeline(c.oracle, partition, layout, SearchContext()), judged, 0.01 * judged);
}

TEST(StageTimelineTest, RecomputingStagesRunTheirForwardPassTwice) {
  const Work work{100 * kMicrosecond, 200 * kMicrosecond, kKiB, kKiB};
  const SearchCase c(testing::ProfiledChain(2, work), testing::FlatCluster(2), 16);
  Partition partition;
  partition.stages = {{0, 1, 1, {1, 1}, 2, true}, {1, 2, 1, {1, 1}, 1, true}};
  const Layout layout = c.Place(partition);
  const double judged = Judge(c, c.Build(partition, layout));
  // The program may recompute while a gradient is on its way.
  EXPECT_NEAR(StageTimeline(c.oracle, partition, layout, SearchContext()), judged, 0.02 * judged);
  EXPECT_GT(judged, 16 * 400e3);
}

TEST(StageTimelineTest, FollowsTheRuleOfPosting) {
  // A message takes 100 us for each sample.
  const Work work{100 * kMicrosecond, 200 * kMicrosecond, 100 * kKiB, kKiB};
  const SearchCase c(testing::ProfiledChain(4, work), testing::FlatCluster(4, 16 * kGiB, 0, 1024e6),
                     64);
  Partition partition;
  for (int32_t s = 0; s < 4; ++s) partition.stages.push_back({s, s + 1, 1, {2, 1}, 4 * (4 - s)});
  const Layout layout = c.Place(partition);
  const Strategy strategy = c.Build(partition, layout);
  std::vector<double> times;
  for (int32_t ahead : {1, 2, 3, 4, 6}) {
    const double judged = Judge(c, strategy, {ahead});
    times.push_back(StageTimeline(c.oracle, partition, layout, SearchContext(), {ahead}));
    EXPECT_NEAR(times.back(), judged, 0.02 * judged) << ahead;
  }
  EXPECT_GT(times.front(), 1.1 * times.back());
}

TEST(StageTimelineTest, TooFewSamplesInFlightNeverEnd) {
  const Work work{100 * kMicrosecond, 200 * kMicrosecond, kKiB, kKiB};
  const SearchCase c(testing::ProfiledChain(2, work), testing::FlatCluster(2), 16);
  Partition partition;
  partition.stages = {{0, 1, 1, {1, 1}, 1}, {1, 2, 1, {4, 1}, 4}};
  EXPECT_TRUE(std::isinf(StageTimeline(c.oracle, partition, c.Place(partition), SearchContext())));
}

TEST(StageTimelineTest, StopsWithTheContext) {
  const Work work{100 * kMicrosecond, 200 * kMicrosecond, kKiB, kKiB};
  const SearchCase c(testing::ProfiledChain(64, work), testing::FlatCluster(64), 4096);
  Partition partition;
  for (int32_t s = 0; s < 64; ++s) partition.stages.push_back({s, s + 1, 1, {1, 1}, 64 - s});
  const Layout layout = c.Place(partition);
  EXPECT_FALSE(std::isinf(StageTimeline(c.oracle, partition, layout, SearchContext())));
  SearchContext cancelled;
  cancelled.Cancel();
  EXPECT_TRUE(std::isinf(StageTimeline(c.oracle, partition, layout, cancelled)));
}

}  // namespace
}  // namespace stagewright
