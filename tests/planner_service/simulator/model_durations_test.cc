#include "planner_service/simulator/model_durations.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/collectives.h"
#include "common/cost/update.h"
#include "common/lowering/lower.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::MakeStrategy;
using testing::ProfiledGraph;

TEST(ModelDurationsTest, SumsNodesAndSizesTransfers) {
  const Graph graph = ProfiledGraph({{3, 5, 100, 0, {}}, {4, 6, 100, 400, {0}}, {1, 2, 0, 0, {1}}});
  const Cluster cluster = FlatCluster(2, kGiB, 11, 1e9);
  const auto costs = MakeAnalyticCostModel(graph);
  const Strategy strategy = MakeStrategy(graph, {{0, 1}, {2}}, {{0}, {1}}, 8, 4);
  const Program program = Lower(graph, strategy, *costs, {}).value();
  const auto durations = MakeModelDurations(graph, program, cluster, *costs, Optimizer::kAdam);
  const auto of = [&](const char* action) {
    return durations->Of(DeviceId(0), ParseAction(action).value());
  };
  EXPECT_EQ(of("F0[0,4)"), 4 * 7);
  EXPECT_EQ(of("B0[4,8)"), 4 * 11);
  // Parameter, gradient and two moments of 400 bytes, read and written at a byte per picosecond.
  EXPECT_EQ(of("OS0"), OptimizerStepTime(cluster.kinds()[0], 1600, 1));
  const auto transfer = durations->TransferOf(ParseAction("SA0[0,4)@0").value());
  EXPECT_EQ(transfer.latency, 11);
  EXPECT_EQ(transfer.bytes, 400);
  EXPECT_FALSE(transfer.links.empty());
}

// What passes, messages and updates cost beyond operators lengthens the actions of that device.
TEST(ModelDurationsTest, FixedCostsAreAddedToPasses) {
  const Graph graph = ProfiledGraph({{3, 5, 100, 400, {}}, {4, 6, 100, 400, {0}}});
  ClusterData data = FlatCluster(2, kGiB, 11, 1e9).data();
  data.kinds[0].pass_overhead = 1000;
  data.kinds[0].message_overhead = 50;
  data.kinds[0].step_overhead = 7000;
  data.kinds[0].parameter_overhead = 30;
  const Cluster cluster = Cluster::Create(data).value();
  const auto costs = MakeAnalyticCostModel(graph);
  const auto of = [&](const Strategy& strategy, const char* action) {
    const Program program = Lower(graph, strategy, *costs, {}).value();
    return MakeModelDurations(graph, program, cluster, *costs, Optimizer::kSgd)
        ->Of(DeviceId(0), ParseAction(action).value());
  };
  const Strategy one = MakeStrategy(graph, {{0, 1}}, {{0}}, 8, 4);
  EXPECT_EQ(of(one, "F0[0,4)"), 1000 + 4 * 7);
  EXPECT_EQ(of(one, "B0[4,8)"), 1000 + 4 * 11);
  EXPECT_EQ(of(one, "OS0"), OptimizerStepTime(cluster.kinds()[0], 1600, 2));
  EXPECT_GE(of(one, "OS0"), 7060);
  // An activation goes and a gradient comes for every pair of passes: a message each.
  const Strategy two = MakeStrategy(graph, {{0}, {1}}, {{0}, {1}}, 8, 4);
  EXPECT_EQ(of(two, "F0[0,4)"), 1050 + 4 * 3);
  EXPECT_EQ(of(two, "B0[0,4)"), 1050 + 4 * 5);
  // Both are of 100 bytes a sample.
  data.kinds[0].message_bytes_per_second = 1e9;
  const Cluster slower = Cluster::Create(data).value();
  const Program program = Lower(graph, two, *costs, {}).value();
  const auto durations = MakeModelDurations(graph, program, slower, *costs, Optimizer::kSgd);
  EXPECT_EQ(durations->Of(DeviceId(0), ParseAction("F0[0,4)").value()), 1050 + 400 + 4 * 3);
}

// Each replica updates its share of what they share out, in two exchanges of half an all-reduce.
TEST(ModelDurationsTest, SharesAreUpdatedAndExchanged) {
  const Graph graph = ProfiledGraph({{3, 5, 100, 600, {}}, {4, 6, 100, 300, {0}}});
  const Cluster cluster = FlatCluster(3, kGiB, 11, 1e9);
  const auto costs = MakeAnalyticCostModel(graph);
  Strategy strategy = MakeStrategy(graph, {{0, 1}}, {{0, 1, 2}}, 6, 6);
  strategy.optimizer_sharding = OptimizerSharding::kStates;
  strategy.bucket_bytes = 1;
  const Program program = Lower(graph, strategy, *costs, {}).value();
  const auto durations = MakeModelDurations(graph, program, cluster, *costs, Optimizer::kAdam);
  const auto of = [&](const char* action) {
    return durations->Of(DeviceId(1), ParseAction(action).value());
  };
  const std::vector<DeviceId> devices = {DeviceId(0), DeviceId(1), DeviceId(2)};
  EXPECT_EQ(of("RS0@0"), ShareExchangeTime(cluster, devices, 300));
  EXPECT_EQ(of("AG0@1"), ShareExchangeTime(cluster, devices, 600));
  // A third of parameters, gradients and two moments.
  EXPECT_EQ(of("OS0@0"), OptimizerStepTime(cluster.kinds()[0], 300 * 4 / 3, 0));
  EXPECT_EQ(of("OS0"), OptimizerStepTime(cluster.kinds()[0], 600 * 4 / 3, 0));
}

// Three nodes with gradients of 100, 100 and 200 bytes, a bucket each.
TEST(ModelDurationsTest, MarksComeWhenTheNodesBehindThemAreDone) {
  const Graph graph =
      ProfiledGraph({{3, 5, 100, 100, {}}, {4, 6, 100, 100, {0}}, {1, 2, 0, 200, {1}}});
  ClusterData data = FlatCluster(2, kGiB, 11, 1e9).data();
  data.kinds[0].pass_overhead = 1000;
  const Cluster cluster = Cluster::Create(data).value();
  const auto costs = MakeAnalyticCostModel(graph);
  Strategy strategy = MakeStrategy(graph, {{0, 1, 2}}, {{0, 1}}, 8, 4);
  strategy.bucket_bytes = 1;
  const Program program = Lower(graph, strategy, *costs, {}).value();
  ASSERT_EQ(program.reductions.size(), 3u);
  const auto durations = MakeModelDurations(graph, program, cluster, *costs, Optimizer::kSgd);
  const auto until = [&](const char* pass, int32_t node) {
    return durations->UntilMark(DeviceId(0), ParseAction(pass).value(), node);
  };
  EXPECT_EQ(until("B0[4,6)", 2), 1000 + 2 * 2);
  EXPECT_EQ(until("B0[4,6)", 1), 1000 + 2 * (2 + 6));
  EXPECT_EQ(until("B0[4,6)", 0), 1000 + 2 * (2 + 6 + 5));
  const auto of = [&](const char* action) {
    return durations->Of(DeviceId(0), ParseAction(action).value());
  };
  EXPECT_EQ(of("B0[4,6)"), until("B0[4,6)", 0));
  const DeviceKind& kind = cluster.kinds()[0];
  EXPECT_EQ(of("OS0@1"), OptimizerStepTime(kind, 2 * 300, 0)) << "the last two nodes'";
  EXPECT_EQ(of("OS0"), OptimizerStepTime(kind, 2 * 100, 3)) << "the rest";
}

}  // namespace
}  // namespace stagewright
