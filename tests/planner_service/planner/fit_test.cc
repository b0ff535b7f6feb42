#include "planner_service/planner/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledChain;
using testing::ProfiledGraph;

std::optional<std::string> Why(const Graph& graph, const Cluster& cluster, Optimizer optimizer,
                               OptimizerSharding sharding = OptimizerSharding::kNone) {
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const auto costs = MakeAnalyticCostModel(graph);
  Problem problem{&graph, &operators, &cluster, costs.get(), 8, optimizer};
  problem.optimizer_sharding = sharding;
  return WhyNothingFits(problem);
}

TEST(FitTest, AnOperatorLargerThanEveryDevice) {
  const Graph graph = ProfiledGraph({{1, 1, 0, kMiB, {}}, {1, 1, 8 * kMiB, 10 * kMiB, {0}}});
  const auto reason = Why(graph, FlatCluster(4, 32 * kMiB), Optimizer::kAdam);
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, AllOf(HasSubstr("operator 'n1' alone needs 48 MiB"),
                             HasSubstr("has 32 MiB: 16 MiB too much"),
                             HasSubstr("a device with at least 48 MiB"),
                             HasSubstr("plain SGD, with which it needs 28 MiB")));
  EXPECT_FALSE(Why(graph, FlatCluster(4, 32 * kMiB), Optimizer::kSgd));
  EXPECT_FALSE(Why(graph, FlatCluster(4, 48 * kMiB), Optimizer::kAdam));
}

// 20 MiB of optimizer state on 8 devices, beside 20 MiB of parameters and gradients and 8 MiB.
TEST(FitTest, AnOperatorWhoseStateReplicasMayShareOut) {
  const Graph graph = ProfiledGraph({{1, 1, 8 * kMiB, 10 * kMiB, {}}});
  const auto reason = Why(graph, FlatCluster(8, 32 * kMiB), Optimizer::kAdam);
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, HasSubstr("--shard-optimizer states"));
  EXPECT_FALSE(Why(graph, FlatCluster(8, 32 * kMiB), Optimizer::kAdam, OptimizerSharding::kStates));
  const auto few = Why(graph, FlatCluster(4, 32 * kMiB), Optimizer::kAdam);
  ASSERT_TRUE(few);
  EXPECT_THAT(*few, ::testing::Not(HasSubstr("--shard-optimizer")));
}

TEST(FitTest, AModelLargerThanTheCluster) {
  const Graph graph = ProfiledChain(10, {1, 1, 0, 10 * kMiB, {}});
  const auto reason = Why(graph, FlatCluster(4, 64 * kMiB), Optimizer::kAdam);
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, AllOf(HasSubstr("need 400 MiB"), HasSubstr("have 256 MiB together"),
                             HasSubstr("144 MiB too much"), HasSubstr("at least 7 devices"),
                             HasSubstr("plain SGD, with which they need 200 MiB")));
  EXPECT_FALSE(Why(graph, FlatCluster(7, 64 * kMiB), Optimizer::kAdam));
}

}  // namespace
}  // namespace stagewright
