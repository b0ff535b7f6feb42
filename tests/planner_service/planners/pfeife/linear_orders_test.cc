#include "planner_service/planners/pfeife/linear_orders.h"

#include <gtest/gtest.h>

#include "tests/planner_service/planners/pfeife/pfeife_cases.h"
#include "tests/support/clusters.h"
#include "tests/support/model_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright::pfeife {
namespace {

using testing::FlatCluster;

void ExpectTopological(const Dag& dag, const std::vector<int32_t>& order) {
  std::vector<int32_t> place(dag.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int32_t>(i);
  for (int32_t v = 0; v < dag.size(); ++v) {
    ASSERT_GE(place[v], 0);
    for (int32_t w : dag.Successors(v)) EXPECT_LT(place[v], place[w]);
  }
}

TEST(LinearOrdersTest, AreTopological) {
  testing::Rng random(9);
  for (int i = 0; i < 30; ++i) {
    const Case c(testing::RandomProfile(random, 40), FlatCluster(4), 8);
    for (int32_t slices : {1, 4, 16}) {
      for (const auto& order : LinearOrders(c.table, 1, slices)) {
        ASSERT_EQ(order.size(), 40u);
        ExpectTopological(c.operators.dag(), order);
      }
    }
  }
}

TEST(LinearOrdersTest, AChainHasOne) {
  const Case c(testing::UnevenChain(20), FlatCluster(4), 8);
  EXPECT_EQ(LinearOrders(c.table, 1, 4).size(), 1u);
}

// Two branches of four operators for eight slices: an operator of each in turn; for four, two.
TEST(LinearOrdersTest, BranchesTakeTurns) {
  std::vector<testing::Work> nodes(8, {10, 20, 0, 0, {}});
  for (int32_t v : {1, 2, 3, 5, 6, 7}) nodes[v].after = {v - 1};
  const Case c(testing::ProfiledGraph(nodes), FlatCluster(2), 8);
  EXPECT_EQ(LinearOrders(c.table, 1, 8)[1], (std::vector<int32_t>{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(LinearOrders(c.table, 1, 4)[1], (std::vector<int32_t>{0, 1, 4, 5, 2, 3, 6, 7}));
}

// With loops, interleaving lets the parts of a branch fall to few devices.
TEST(LinearOrdersTest, InterleavingHelpsLoopsOverBranches) {
  const Case c(testing::MmtGraph(4, 8), FlatCluster(8, 1024 * kGiB, 20 * kMicrosecond, 12.5e9), 8);
  Effort effort;
  effort.most_passes = int64_t{1} << 40;
  BeamOptions narrow;
  narrow.width = 8;
  const double traced = BestEstimate(c, 8, 8, 2, narrow, effort, false);
  const double interleaved = BestEstimate(c, 8, 8, 2, narrow, effort, true);
  EXPECT_LT(interleaved, traced);
}

}  // namespace
}  // namespace stagewright::pfeife
