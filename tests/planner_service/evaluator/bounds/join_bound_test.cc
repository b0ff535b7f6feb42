#include "planner_service/evaluator/bounds/join_bound.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/cost/analytic.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::ProfiledGraph;

constexpr Bytes kHuge = 1'000'000'000;  // Bytes of parameters: a second and more to sum at 1 GB/s.

double Millis(const Graph& graph, const Cluster& cluster, int64_t mini_batch, double known = 0) {
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const auto costs = MakeAnalyticCostModel(graph);
  const BoundProblem problem =
      MakeBoundProblem(graph, operators, cluster, *costs, mini_batch, Optimizer::kSgd);
  return BoundJoins(problem, known * 1e6) * 1e-6;
}

// Producers of 1 MB a sample, 3 ms of work for each, and what reads them all.
Graph Join(int32_t producers, Bytes parameters, Bytes of_join) {
  std::vector<testing::Work> nodes;
  testing::Work join = {kMillisecond, 2 * kMillisecond, 0, of_join, {}};
  for (int32_t v = 0; v < producers; ++v) {
    nodes.push_back({kMillisecond, 2 * kMillisecond, 1'000'000, parameters, {}});
    join.after.push_back(v);
  }
  nodes.push_back(join);
  return ProfiledGraph(nodes);
}

// The least over x of the larger of a rising and a falling line on [0, 1].
double Crossing(double rising_from, double rising_by, double falling_from, double falling_by) {
  double least = 1e18;
  for (int i = 0; i <= 10000; ++i) {
    const double x = i / 10000.0;
    least = std::min(least, std::max(rising_from + rising_by * x, falling_from - falling_by * x));
  }
  return least;
}

TEST(JoinBoundTest, WhatComesThroughThePortAgainstWhatRunsBesideIt) {
  // Nothing with a second of sums is replicated. A part x of the eight producers runs beside the
  // join, whose device works 100 (3 + 24 x) ms; 800 (1 - x) MB come in at 0.25 GB/s, before which
  // the first sample takes 1 ms, and after which 3 ms and an update of 4 ms remain.
  const Graph graph = Join(8, kHuge, kHuge);
  const double expected = Crossing(300, 2400, 1 + 3 + 4 + 3200, 3200);
  EXPECT_NEAR(Millis(graph, FlatCluster(9, 16 * kGiB, 0, 0.25e9), 100), expected, 0.005 * expected);
}

TEST(JoinBoundTest, ReplicasOfTheJoinShareThePorts) {
  // Without parameters the join spreads over all nine devices for nothing.
  const double spread = Millis(Join(8, kHuge, 0), FlatCluster(9, 16 * kGiB, 0, 0.25e9), 100);
  EXPECT_LT(spread, 3200.0 / 5);
  // Each takes in at least 7/8 of a ninth, unless shares are uneven.
  EXPECT_GT(spread, 3200.0 / 9 * 0.7);
}

TEST(JoinBoundTest, ReplicatedProducersCostTheirSums) {
  const Cluster cluster = FlatCluster(4, 16 * kGiB, 0, 0.25e9);
  // Free to replicate: everything runs everywhere, and the bound is work.
  EXPECT_LE(Millis(Join(4, 0, 0), cluster, 64), 64 * 15.0 / 4 + 1);
  // On all four devices, each producer makes up a quarter of what its own device reads. Of the
  // other 192 MB for each port a part y is made there instead, by replicas whose sums of 20 MB take
  // every device 480 y ms.
  const double expected = Crossing(0, 480, 1 + 3 + 2 + 192, 192);
  EXPECT_NEAR(Millis(Join(4, 20'000'000, 0), cluster, 64), expected, 0.03 * expected);
}

TEST(JoinBoundTest, NodesShareTheirUplink) {
  HierarchicalSpec spec;
  spec.name = "pairs";
  spec.nodes = 4;
  spec.devices_per_node = 2;
  spec.kind = FlatCluster(1).kinds()[0];
  spec.memory = 16 * kGiB;
  spec.inside = {"port", 0, 1e12};
  spec.outside = {"uplink", 0, 0.25e9};
  const Cluster cluster = MakeHierarchical(spec).value();
  // The join's two devices have 100 (3 + 24 x) / 2 ms to work.
  const double expected = Crossing(150, 1200, 1 + 3 + 4 + 3200, 3200);
  EXPECT_NEAR(Millis(Join(8, kHuge, kHuge), cluster, 100), expected, 0.01 * expected);
}

TEST(JoinBoundTest, NothingWhereMoreIsKnownOrNothingIsSent) {
  const Graph graph = Join(8, kHuge, kHuge);
  EXPECT_EQ(Millis(graph, FlatCluster(9, 16 * kGiB, 0, 0.25e9), 100, 1e5), 0);
  EXPECT_EQ(Millis(graph, FlatCluster(1), 100), 0);
}

}  // namespace
}  // namespace stagewright
