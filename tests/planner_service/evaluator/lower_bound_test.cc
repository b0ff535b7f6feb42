#include "planner_service/evaluator/lower_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/policies/breadth_first.h"
#include "common/policies/looped.h"
#include "common/policies/zero_bubble.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/orders.h"
#include "planner_service/evaluator/evaluator.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/small_problems.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::ProfiledChain;
using testing::ProfiledGraph;
using testing::Rng;
using testing::Uniform;

Nanos Bound(const Graph& graph, const Cluster& cluster, int64_t mini_batch) {
  const auto costs = MakeAnalyticCostModel(graph);
  return LowerBound(graph, OneOperatorPerNode(graph).value(), cluster, *costs, mini_batch);
}

// The bound gives up one part in 10^12, and what others round to whole nanoseconds.
void ExpectJustBelow(Nanos bound, Nanos exact) {
  EXPECT_LE(bound, exact);
  EXPECT_GE(bound, exact - 3);
}

TEST(LowerBoundTest, WorkOverDevices) {
  const Graph graph = ProfiledChain(6, {1000, 2000, 0, 0, {}});
  ExpectJustBelow(Bound(graph, FlatCluster(3), 30), 6 * 3000 * 30 / 3);
}

TEST(LowerBoundTest, APathThereAndBack) {
  // With a single sample nothing is parallel but the two branches.
  const Graph graph = ProfiledGraph({{1000, 2000, 0, 0, {}},
                                     {500, 500, 0, 0, {0}},
                                     {3000, 4000, 0, 0, {0}},
                                     {100, 200, 0, 0, {1, 2}}});
  ExpectJustBelow(Bound(graph, FlatCluster(4), 1), 1000 + 3000 + 100 + 2000 + 4000 + 200);
}

TEST(LowerBoundTest, ANodeWhoseGradientsCostTooMuchToSum) {
  // 1 GB of parameters take 1 s and more to sum; alone the node takes 0.3 s.
  const Graph graph = ProfiledGraph({{kMillisecond, 2 * kMillisecond, 0, 1'000'000'000, {}}});
  // Its update goes over 2 GB twice at 1 TB/s.
  ExpectJustBelow(Bound(graph, FlatCluster(8), 100), 304 * kMillisecond);
  // Where summing is cheap, eight devices share the work.
  const Cluster fast = FlatCluster(8, 16 * kGiB, 0, 1e15);
  EXPECT_LT(Bound(graph, fast, 100), 44 * kMillisecond);
}

TEST(LowerBoundTest, FrozenNetworksHaveNoWayBack) {
  const Graph graph = ProfiledGraph({{1000, 0, 0, 0, {}}, {1000, 0, 0, 0, {0}}});
  ExpectJustBelow(Bound(graph, FlatCluster(2), 1), 2000);
}

TEST(LowerBoundTest, TheFastestKindCounts) {
  ClusterData data = FlatCluster(2).data();
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "fast";
  data.kinds[1].flops_per_second *= 2;
  data.kinds[1].memory_bytes_per_second *= 2;
  data.devices[1].kind = 1;
  Rng random(1);
  const Graph graph = testing::RandomNetwork(random, 10);
  EXPECT_LT(Bound(graph, Cluster::Create(data).value(), 64), Bound(graph, FlatCluster(2), 64));
}

TEST(LowerBoundTest, AnIndivisibleNodeWaitsForItsAncestorsAndHoldsThemUp) {
  // n1 cannot be shared out: summing its gradients takes a second and more.
  const Graph graph = ProfiledGraph(
      {{1000, 2000, 0, 0, {}}, {kMillisecond, 2 * kMillisecond, 0, 1'000'000'000, {0}}});
  const Nanos update = 4 * kMillisecond;  // 1 GB and its gradient, read and written at 1 TB/s.
  ExpectJustBelow(Bound(graph, FlatCluster(2), 100), 300 * kMillisecond + 1000 + update);
}

TEST(LowerBoundTest, UpdatesAreWorkToo) {
  // Free nodes with 1 GB of parameters each and as much of gradients, at 1 TB/s.
  const Graph graph = ProfiledChain(4, {0, 0, 0, 1'000'000'000, {}});
  const Nanos bound = Bound(graph, FlatCluster(2), 1);
  EXPECT_NEAR(static_cast<double>(bound), 4 * 4e6 / 2, 10);
  BoundOptions adam;
  adam.optimizer = Optimizer::kAdam;
  const auto costs = MakeAnalyticCostModel(graph);
  EXPECT_NEAR(static_cast<double>(LowerBound(graph, OneOperatorPerNode(graph).value(),
                                             FlatCluster(2), *costs, 1, adam)),
              4 * 8e6 / 2, 10);
}

// One device of two kinds each, the second twice as fast.
Cluster MixedCluster(Bytes fast_memory) {
  ClusterData data = FlatCluster(2, 16 * kGiB, 0, 1e15).data();
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "fast";
  data.kinds[1].flops_per_second *= 2;
  data.kinds[1].memory_bytes_per_second *= 2;
  data.devices[1].kind = 1;
  data.devices[1].memory = fast_memory;
  return Cluster::Create(data).value();
}

// Time follows the kind's rate, 1 us a sample at 1 TFLOP/s, and every sample saves 1 GiB.
class RatedCosts : public CostModel {
 public:
  OperatorTime Time(NodeId, const DeviceKind& kind, int64_t samples) const override {
    const auto time = static_cast<Nanos>(1e15 / kind.flops_per_second) * samples;
    return {time, time, time, 0};
  }
  Bytes SavedBytes(NodeId, int64_t samples) const override { return samples * kGiB; }
  Bytes WorkspaceBytes(NodeId, int64_t) const override { return 0; }
  std::string Description() const override { return "rated"; }
};

TEST(LowerBoundTest, KindsShareTheWorkByTheirRates) {
  const Graph graph = ProfiledChain(30, {});
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const Cluster cluster = MixedCluster(64 * kGiB);
  // 2 us a node and sample, or 1 us: at best 20 nodes on the fast device and 10 on the slow one.
  const Nanos bound = LowerBound(graph, operators, cluster, RatedCosts(), 10);
  EXPECT_NEAR(static_cast<double>(bound), 10 * 20 * 1000, 30);
}

TEST(LowerBoundTest, ADeviceWithoutRoomForASampleTakesNoWork) {
  const Graph graph = ProfiledChain(30, {});
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const Cluster cluster = MixedCluster(kMiB);
  const Nanos bound = LowerBound(graph, operators, cluster, RatedCosts(), 1);
  EXPECT_NEAR(static_cast<double>(bound), 30 * 2000, 30);
}

// A launch takes 10 us whatever the samples, and every sample saves 1 GiB.
class LaunchCosts : public RatedCosts {
 public:
  OperatorTime Time(NodeId, const DeviceKind&, int64_t samples) const override {
    const Nanos time = samples > 0 ? 10 * kMicrosecond : 0;
    return {time, time, time, 0};
  }
};

TEST(LowerBoundTest, MemoryForcesSmallMicroBatches) {
  const Graph graph = ProfiledChain(1, {});
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  // 64 samples at once, or eight times eight.
  const auto bound = [&](Bytes memory) {
    return LowerBound(graph, operators, FlatCluster(1, memory), LaunchCosts(), 64);
  };
  ExpectJustBelow(bound(64 * kGiB), 20 * kMicrosecond);
  ExpectJustBelow(bound(8 * kGiB), 8 * 20 * kMicrosecond);
}

TEST(LowerBoundTest, NoBackwardPassBeginsBeforeTheLoss) {
  // Ten frozen nodes in a row, and four of 1 and 10 us on their end that train, with one loss.
  std::vector<testing::Work> nodes = {{1000, 0, 0, 0, {}}};
  for (int32_t v = 1; v < 10; ++v) nodes.push_back({1000, 0, 0, 0, {v - 1}});
  for (int i = 0; i < 4; ++i) nodes.push_back({1000, 10'000, 0, 8, {9}});
  nodes.push_back({1000, 0, 0, 8, {10, 11, 12, 13}});
  nodes.back().backward = 1000;
  const Graph graph = ProfiledGraph(nodes);
  // Both devices wait for a sample to come to the loss, in 12 us, and then go through 41 us back.
  const Nanos bound = Bound(graph, FlatCluster(2), 1);
  EXPECT_LE(bound, 12'000 + 41'000 / 2);
  EXPECT_GT(bound, 32'000);
  // With a second loss in the first trained node some of them may be back before.
  nodes.push_back({1000, 1000, 0, 8, {10}});
  EXPECT_LT(Bound(ProfiledGraph(nodes), FlatCluster(2), 1), 32'000);
}

// Looped, breadth-first and zero-bubble orders for a strategy with one micro-batch size.
void OrderAtRandom(Rng& random, const Graph& graph, int64_t mini_batch, Strategy& strategy) {
  for (Stage& stage : strategy.stages) {
    stage.micro_batch = strategy.stages[0].micro_batch;
    if (static_cast<int64_t>(stage.devices.size()) > stage.micro_batch) {
      stage.devices.resize(stage.micro_batch);
    }
    stage.schedule.k = 1;
  }
  AssignInFlight(strategy);
  absl::StatusOr<std::vector<DeviceOrder>> orders;
  switch (Uniform(random, 0, 3)) {
    case 0:
      orders = LoopedOrders(graph, strategy, {Uniform(random, 1, mini_batch), {}});
      break;
    case 1:
      orders = BreadthFirstOrders(graph, strategy);
      break;
    case 2:
      orders = ZeroBubbleH1Orders(graph, strategy);
      break;
    default:
      orders = ZeroBubbleVOrders(graph, strategy);
  }
  if (orders.ok()) SetOrders(graph, *std::move(orders), strategy);
}

// Any strategy: random partitions, replicas and micro-batches, then recomputation, devices with
// several stages, and orders of their own.
Strategy AnyStrategy(Rng& random, const Graph& graph, const OperatorGraph& operators,
                     const Cluster& cluster, int64_t mini_batch) {
  Strategy strategy = testing::RandomStrategy(random, graph, operators, cluster, mini_batch);
  for (Stage& stage : strategy.stages) stage.recompute = Uniform(random, 0, 3) == 0;
  if (Uniform(random, 0, 2) == 0) {
    const int64_t used = Uniform(random, 1, cluster.size());
    for (Stage& stage : strategy.stages) {
      for (DeviceId& device : stage.devices) device = DeviceId(device.value() % used);
      std::sort(stage.devices.begin(), stage.devices.end());
      stage.devices.erase(std::unique(stage.devices.begin(), stage.devices.end()),
                          stage.devices.end());
    }
  }
  if (Uniform(random, 0, 2) == 0) OrderAtRandom(random, graph, mini_batch, strategy);
  return strategy;
}

// Every strategy that can be evaluated takes at least the bound.
TEST(LowerBoundTest, NoStrategyBeatsIt) {
  Rng random(31);
  int judged = 0;
  int tight = 0;
  int ordered = 0;
  int asynchronous = 0;
  for (int i = 0; i < 250; ++i) {
    SCOPED_TRACE(i);
    const auto size = static_cast<int32_t>(Uniform(random, 1, 20));
    const Graph graph = Uniform(random, 0, 1) == 0 ? testing::RandomProfile(random, size)
                                                   : testing::RandomNetwork(random, size);
    const Cluster cluster = testing::RandomCluster(random, 8);
    const OperatorGraph operators = OneOperatorPerNode(graph).value();
    const auto costs = MakeAnalyticCostModel(graph);
    const int64_t mini_batch = Uniform(random, 1, 48);
    EvaluateOptions evaluate;
    evaluate.optimizer = Uniform(random, 0, 1) == 0 ? Optimizer::kSgd : Optimizer::kAdam;
    BoundOptions options;
    options.optimizer = evaluate.optimizer;
    const Nanos sharded = LowerBound(graph, operators, cluster, *costs, mini_batch,
                                     {options.optimizer, false, OptimizerSharding::kStates});
    const Nanos with_gradients =
        LowerBound(graph, operators, cluster, *costs, mini_batch,
                   {options.optimizer, false, OptimizerSharding::kGradients});
    ASSERT_LE(with_gradients, sharded);
    const Nanos bound = LowerBound(graph, operators, cluster, *costs, mini_batch, options);
    ASSERT_GE(bound, LowerBound(graph, operators, cluster, *costs, mini_batch));
    options.asynchronous = true;
    const Nanos unflushed = LowerBound(graph, operators, cluster, *costs, mini_batch, options);
    ASSERT_LE(unflushed, bound);
    for (int j = 0; j < 10; ++j) {
      Strategy strategy = AnyStrategy(random, graph, operators, cluster, mini_batch);
      strategy.asynchronous = strategy.orders.empty() && Uniform(random, 0, 4) == 0;
      const bool shares = !strategy.asynchronous && Uniform(random, 0, 3) == 0;
      if (shares) {
        strategy.optimizer_sharding =
            j % 2 == 0 ? OptimizerSharding::kStates : OptimizerSharding::kGradients;
      }
      const auto evaluation = Evaluate(graph, cluster, *costs, strategy, evaluate);
      if (!evaluation.ok()) continue;
      ++judged;
      ordered += strategy.orders.empty() ? 0 : 1;
      asynchronous += strategy.asynchronous ? 1 : 0;
      const Nanos of_shares = j % 2 == 0 ? sharded : with_gradients;
      const Nanos least = strategy.asynchronous ? unflushed : shares ? of_shares : bound;
      ASSERT_GE(evaluation->iteration_time, least);
      if (static_cast<double>(evaluation->iteration_time) < 1.3 * static_cast<double>(least)) {
        ++tight;
      }
    }
  }
  EXPECT_GT(judged, 800);
  EXPECT_GT(ordered, 100);
  EXPECT_GT(asynchronous, 50);
  EXPECT_GT(tight, 25);  // It also says something.
}

// The same where messages and sums decide: links between 10,000 and 30 times slower, or small
// problems made for it.
TEST(LowerBoundTest, NoStrategyBeatsItWhereMessagesCount) {
  Rng random(47);
  int judged = 0;
  int joins = 0;
  int tight = 0;
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE(i);
    ClusterData data = testing::RandomCluster(random, 8).data();
    const auto slower = static_cast<double>(Uniform(random, 30, 10'000));
    for (Link& link : data.links) link.bytes_per_second /= slower;
    const auto size = static_cast<int32_t>(Uniform(random, 2, 14));
    auto small = i % 2 == 0 ? testing::MakeLeanProblem(i % testing::kLeanProblems) : nullptr;
    const Graph graph = small ? small->graph : testing::RandomNetwork(random, size);
    const Cluster cluster = small ? small->cluster : Cluster::Create(data).value();
    const OperatorGraph operators = OneOperatorPerNode(graph).value();
    const std::unique_ptr<CostModel> analytic = MakeAnalyticCostModel(graph);
    const CostModel& costs = small ? *small->costs : *analytic;
    const int64_t mini_batch = Uniform(random, 1, 24);
    const BoundParts parts = BoundPartsOf(graph, operators, cluster, costs, mini_batch);
    joins += parts.join > std::max({parts.work, parts.node, parts.path, parts.joint}) ? 1 : 0;
    EvaluateOptions evaluate;
    evaluate.optimizer = Optimizer::kSgd;
    for (int j = 0; j < 10; ++j) {
      const Strategy strategy = AnyStrategy(random, graph, operators, cluster, mini_batch);
      const auto evaluation = Evaluate(graph, cluster, costs, strategy, evaluate);
      if (!evaluation.ok()) continue;
      ++judged;
      ASSERT_GE(evaluation->iteration_time, parts.Largest());
      if (evaluation->iteration_time < parts.Largest() * 13 / 10) ++tight;
    }
  }
  EXPECT_GT(judged, 1500);
  EXPECT_GT(joins, 40);
  EXPECT_GT(tight, 25);
}

// Bound and plan count messages in the types that they have in mixed precision.
TEST(LowerBoundTest, NoStrategyBeatsItInMixedPrecision) {
  Rng random(61);
  int judged = 0;
  int tight = 0;
  int faster = 0;  // Strategies that gain a third by it.
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    ClusterData data = testing::RandomCluster(random, 6).data();
    const auto slower = static_cast<double>(Uniform(random, 30, 10'000));
    for (Link& link : data.links) link.bytes_per_second /= slower;
    const Graph graph =
        testing::RandomNetwork(random, static_cast<int32_t>(Uniform(random, 2, 12)));
    const Cluster cluster = Cluster::Create(data).value();
    const OperatorGraph operators = OneOperatorPerNode(graph).value();
    const auto costs = MakeAnalyticCostModel(graph, Precision::kBFloat16);
    const auto wide = MakeAnalyticCostModel(graph);
    const int64_t mini_batch = Uniform(random, 1, 24);
    const Nanos bound = LowerBound(graph, operators, cluster, *costs, mini_batch);
    BoundOptions options;
    options.asynchronous = true;
    const Nanos unflushed = LowerBound(graph, operators, cluster, *costs, mini_batch, options);
    EvaluateOptions evaluate;
    evaluate.optimizer = Optimizer::kSgd;
    for (int j = 0; j < 6; ++j) {
      Strategy strategy = AnyStrategy(random, graph, operators, cluster, mini_batch);
      strategy.asynchronous = strategy.orders.empty() && j % 3 == 0;
      const auto evaluation = Evaluate(graph, cluster, *costs, strategy, evaluate);
      if (!evaluation.ok()) continue;
      ++judged;
      const Nanos least = strategy.asynchronous ? unflushed : bound;
      ASSERT_GE(evaluation->iteration_time, least);
      if (evaluation->iteration_time < least * 13 / 10) ++tight;
      const auto in_float32 = Evaluate(graph, cluster, *wide, strategy, evaluate);
      if (in_float32.ok() && evaluation->iteration_time < in_float32->iteration_time * 2 / 3)
        ++faster;
    }
  }
  EXPECT_GT(judged, 150);
  EXPECT_GT(tight, 5);
  EXPECT_GT(faster, 20);
}

}  // namespace
}  // namespace stagewright
