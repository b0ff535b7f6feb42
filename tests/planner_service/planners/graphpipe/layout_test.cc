#include "planner_service/planners/graphpipe/layout.h"

#include <gtest/gtest.h>

#include "common/topology/presets.h"
#include "tests/planner_service/planners/graphpipe/search_case.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::SearchCase;
using testing::Work;

const Work kWork{100 * kMicrosecond, 200 * kMicrosecond, 100 * kKiB, kKiB};

TEST(LayoutTest, ASequentialLayoutChainsItsStages) {
  std::vector<Work> nodes(4, kWork);
  nodes[3].after = {0, 1, 2};
  const SearchCase c(testing::ProfiledGraph(nodes), testing::FlatCluster(4), 8);
  Partition partition;
  for (int32_t s = 0; s < 4; ++s) partition.stages.push_back({s, s + 1, 1, {1, 1}, 1});
  EXPECT_EQ(c.Place(partition).edges.size(), 3u);
  const Layout chain = c.Place(partition, StrategyKind::kSequential);
  ASSERT_EQ(chain.edges.size(), 5u);  // 0-1, 0-3, 1-2, 1-3, 2-3
  EXPECT_EQ(chain.edges[0].to, 1);
  for (const auto& [link, bytes] : chain.edges[0].there.links) EXPECT_EQ(bytes, 0);
}

TEST(LayoutTest, ReplicasShareTheBytesOfAMessage) {
  const SearchCase c(testing::ProfiledChain(2, kWork), testing::FlatCluster(6), 8);
  Partition partition;
  partition.stages = {{0, 1, 2, {2, 1}, 4}, {1, 2, 4, {4, 1}, 4}};
  const Layout layout = c.Place(partition);
  ASSERT_EQ(layout.edges.size(), 1u);
  double sent = 0;
  for (const auto& [link, bytes] : layout.edges[0].there.links) sent += bytes;
  const double per_sample = c.oracle.At(0, 1).out_per_sample;
  // Each byte passes two links: the sender's port and the receiver's.
  EXPECT_NEAR(sent, 2 * per_sample, 1e-6 * per_sample);
  EXPECT_NEAR(layout.Busiest(c.cluster), per_sample / 2, 1e-6 * per_sample);  // 1 GB/s a port.
}

// Three branches that end in one stage of four replicas: on one node its port carries everything.
TEST(LayoutTest, SpreadingAJoinRelievesItsPort) {
  std::vector<Work> nodes(4, kWork);
  nodes[3].after = {0, 1, 2};
  const SearchCase c(testing::ProfiledGraph(nodes), *ClusterPreset("summit:4"), 64);
  Partition partition;
  for (int32_t s = 0; s < 3; ++s) partition.stages.push_back({s, s + 1, 4, {16, 1}, 32});
  partition.stages.push_back({3, 4, 4, {16, 1}, 16});
  EXPECT_TRUE(StagesToSpread(c.oracle, partition, 1e9).empty());
  const std::vector<bool> spread = StagesToSpread(c.oracle, partition, 10e3);
  ASSERT_EQ(spread, (std::vector<bool>{false, false, false, true}));
  const Layout packed = c.Place(partition);
  const Layout wide = MakeLayout(c.oracle, partition, StrategyKind::kGraph, spread);
  EXPECT_LT(wide.Busiest(c.cluster), 0.5 * packed.Busiest(c.cluster));
}

}  // namespace
}  // namespace stagewright
