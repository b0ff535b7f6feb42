#include "planner_service/evaluator/bounds/joint_bound.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner_service/evaluator/bounds/node_bound.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::ProfiledChain;
using testing::ProfiledGraph;

// Each of a forward pass, an input half and a weight half takes a launch and a time for each
// sample, both 1 ms.
class LaunchedCosts : public CostModel {
 public:
  OperatorTime Time(NodeId, const DeviceKind&, int64_t samples) const override {
    const Nanos pass = (1 + samples) * kMillisecond;
    return {pass, 2 * pass, pass, pass};
  }
  Bytes SavedBytes(NodeId, int64_t) const override { return 0; }
  Bytes WorkspaceBytes(NodeId, int64_t) const override { return 0; }
  std::string Description() const override { return "launched"; }
};

double Millis(const Graph& graph, int32_t devices, int64_t mini_batch,
              const CostModel& costs = LaunchedCosts()) {
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const Cluster cluster = FlatCluster(devices);
  const BoundProblem problem =
      MakeBoundProblem(graph, operators, cluster, costs, mini_batch, Optimizer::kSgd);
  return BoundJointly(problem, BoundWork(problem)) * 1e-6;
}

TEST(JointBoundTest, LargeSharesAndShortWaysExcludeEachOther) {
  // Two chains of two nodes, two samples, two devices for each. Shares of one make 12 ms of work on
  // each device and a way of 8 + 2 ms, shares of two 9 ms and 12 + 2 ms. Samples may differ: at
  // best 5 of 7 are alone.
  const Graph two =
      ProfiledGraph({{1, 2, 0, 0, {}}, {1, 2, 0, 0, {0}}, {1, 2, 0, 0, {}}, {1, 2, 0, 0, {2}}});
  EXPECT_NEAR(Millis(two, 4, 2), 78.0 / 7, 0.06);
}

TEST(JointBoundTest, WithOneLossBackwardPassesWaitForIt) {
  // Like one of these chains. Shares of one are at the loss after 4 ms and then make 8 ms of work
  // on each device, shares of two after 6 ms and make 6 ms.
  EXPECT_NEAR(Millis(ProfiledChain(2, {1, 2, 0, 0, {}}), 2, 2), 12, 0.06);
}

TEST(JointBoundTest, EveryBranchHasAWayToTheLoss) {
  // Branches of two nodes before a loss that takes a tenth of their time: a way of 2.1 nodes to it,
  // and 4.1 nodes of work on four devices that can only follow.
  class Costs : public LaunchedCosts {
    OperatorTime Time(NodeId node, const DeviceKind& kind, int64_t samples) const override {
      OperatorTime time = LaunchedCosts::Time(node, kind, samples);
      if (node.index() != 4) return time;
      return {time.forward / 10, time.backward / 10, time.backward_input / 10,
              time.backward_weight / 10};
    }
  };
  const Graph graph = ProfiledGraph({{1, 2, 0, 0, {}},
                                     {1, 2, 0, 0, {0}},
                                     {1, 2, 0, 0, {}},
                                     {1, 2, 0, 0, {2}},
                                     {1, 2, 0, 0, {1, 3}}});
  // Shares of one: 4.2 + 8.2 ms; of two: 6.3 + 6.15 ms. Work alone is 12.3 and 9.225 ms.
  EXPECT_NEAR(Millis(graph, 4, 2, Costs()), 12.4, 0.1);
}

TEST(JointBoundTest, WithOneDeviceItIsWork) {
  // Shares of all four samples: 3 (1 + 4) ms a node.
  EXPECT_NEAR(Millis(ProfiledChain(3, {1, 2, 0, 0, {}}), 1, 4), 45, 1e-6);
}

// A strategy in which all have shares of s has this work and this way, so no bound is above both.
TEST(JointBoundTest, AtMostTheBestUniformShare) {
  testing::Rng random(5);
  int above = 0;
  for (int i = 0; i < 100; ++i) {
    const auto length = static_cast<int32_t>(testing::Uniform(random, 1, 12));
    const auto devices = static_cast<int32_t>(1 << testing::Uniform(random, 0, 4));
    const int64_t mini_batch = 1 << testing::Uniform(random, 0, 6);
    double least = 1e18;
    double least_work = 1e18;
    for (int64_t s = 1; s <= mini_batch; s *= 2) {
      const double pass = 1 + static_cast<double>(s);
      const double work =
          length * 3 * pass * static_cast<double>(mini_batch) / static_cast<double>(s * devices);
      const double way = length * 2 * pass + 2;  // The weight half of one sample is the least.
      least = std::min(least, std::max(work, way));
      least_work = std::min(least_work, work);
    }
    const double joint = Millis(ProfiledChain(length, {1, 2, 0, 0, {}}), devices, mini_batch);
    EXPECT_LE(joint, least + 1e-6);
    EXPECT_GE(joint, least_work - 1e-6);
    above += joint > 1.02 * least_work ? 1 : 0;
  }
  EXPECT_GT(above, 30);
}

}  // namespace
}  // namespace stagewright
