#include "common/lowering/reductions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/clusters.h"
#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/schedule_cases.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ProgramStage StageOn(std::vector<int32_t> nodes, std::vector<int32_t> devices) {
  ProgramStage stage;
  for (int32_t node : nodes) stage.nodes.push_back(NodeId(node));
  for (int32_t device : devices) stage.devices.push_back(DeviceId(device));
  return stage;
}

// Parameters of one float32 each: a frozen one, "tied" of the first and the last node, "own".
Graph TiedGraph() {
  testing::GraphBuilder builder("tied");
  const Argument x = builder.Feature("x", {1});
  const Argument frozen = builder.Weight("frozen", {1, 1}, false);
  const Argument tied = builder.Weight("tied", {1, 1});
  const Argument own = builder.Weight("own", {1, 1});
  const Argument a = builder.Add("aten.linear.default", {x, tied}, {1});
  const Argument b = builder.Add("aten.linear.default", {a, own, frozen}, {1});
  builder.Add("aten.linear.default", {b, tied}, {1});
  return builder.Build();
}

// Without buckets.
std::vector<Reduction> WholeSums(const Graph& graph, const std::vector<ProgramStage>& stages) {
  std::vector<Reduction> reductions;
  for (PlannedReduction& planned : MakeReductions(graph, stages, {})) {
    EXPECT_EQ(planned.mark, PlannedReduction::kEnd);
    reductions.push_back(std::move(planned.reduction));
  }
  return reductions;
}

TEST(Reductions, OfAReplicatedStageAreOverItsReplicas) {
  const std::vector<Reduction> reductions =
      WholeSums(testing::ChainGraph(3), {StageOn({0, 1}, {3, 1}), StageOn({2, 3}, {2})});
  ASSERT_EQ(reductions.size(), 1u) << "stage 1 runs on one device";
  EXPECT_THAT(reductions[0].devices, ElementsAre(DeviceId(1), DeviceId(3)));
  EXPECT_THAT(reductions[0].stages, ElementsAre(StageId(0)));
  EXPECT_THAT(reductions[0].parameters, ElementsAre(ParameterId(0), ParameterId(1)));
  EXPECT_EQ(reductions[0].bytes, 2 * 4);
  EXPECT_FALSE(reductions[0].gradient_norm);
}

TEST(Reductions, TheLastStageComesFirst) {
  const std::vector<Reduction> reductions =
      WholeSums(testing::ChainGraph(3),
                {StageOn({0}, {0, 1}), StageOn({1}, {2, 3}), StageOn({2, 3}, {4, 5})});
  ASSERT_EQ(reductions.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_THAT(reductions[i].stages, ElementsAre(StageId(2 - i)));
}

TEST(Reductions, ATiedParameterIsSummedOverItsStages) {
  const std::vector<Reduction> reductions =
      WholeSums(TiedGraph(), {StageOn({0}, {0}), StageOn({1}, {1, 2}), StageOn({2}, {3})});
  ASSERT_EQ(reductions.size(), 2u);
  EXPECT_THAT(reductions[0].stages, ElementsAre(StageId(1)));
  EXPECT_THAT(reductions[0].parameters, ElementsAre(ParameterId(2))) << "not the frozen one";
  EXPECT_EQ(reductions[0].bytes, 4);
  EXPECT_THAT(reductions[1].stages, ElementsAre(StageId(0), StageId(2)));
  EXPECT_THAT(reductions[1].parameters, ElementsAre(ParameterId(1)));
  EXPECT_THAT(reductions[1].devices, ElementsAre(DeviceId(0), DeviceId(3)));
}

TEST(Reductions, StagesOfOneDeviceNeedNone) {
  EXPECT_THAT(WholeSums(TiedGraph(), {StageOn({0, 1}, {0}), StageOn({2}, {0})}), IsEmpty());
}

TEST(Reductions, PlanningOnlyNodesAddBytesWithoutParameters) {
  const std::vector<Reduction> reductions =
      WholeSums(testing::TwoProfiledNodes(), {StageOn({0, 1}, {0, 1})});
  ASSERT_EQ(reductions.size(), 1u);
  EXPECT_EQ(reductions[0].bytes, 2 * 400);
  EXPECT_THAT(reductions[0].parameters, IsEmpty());
}

// In the order in which a backward pass completes them: the last node's first, and a parameter of
// two nodes with the first of them.
TEST(Reductions, OfOneStageAreCutInTheOrderOfItsBackwardPass) {
  const std::vector<PlannedReduction> buckets =
      MakeReductions(TiedGraph(), {StageOn({0, 1, 2}, {0, 1})}, {.bytes = 4});
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_THAT(buckets[0].reduction.parameters, ElementsAre(ParameterId(2)));
  EXPECT_EQ(buckets[0].mark, 1);
  EXPECT_THAT(buckets[1].reduction.parameters, ElementsAre(ParameterId(1)));
  EXPECT_EQ(buckets[1].mark, 0);
  for (const PlannedReduction& bucket : buckets) {
    EXPECT_EQ(bucket.reduction.bytes, 4);
    EXPECT_THAT(bucket.reduction.devices, ElementsAre(DeviceId(0), DeviceId(1)));
    EXPECT_THAT(bucket.reduction.stages, ElementsAre(StageId(0)));
  }
}

TEST(Reductions, OneBucketIsSummedAfterThePass) {
  const std::vector<PlannedReduction> buckets =
      MakeReductions(TiedGraph(), {StageOn({0, 1, 2}, {0, 1})}, {.bytes = 5});
  ASSERT_EQ(buckets.size(), 1u);
  EXPECT_EQ(buckets[0].mark, PlannedReduction::kEnd);
  EXPECT_EQ(buckets[0].reduction.bytes, 8);
}

TEST(Reductions, WhatSeveralStagesShareIsNotCut) {
  const std::vector<PlannedReduction> reductions =
      MakeReductions(TiedGraph(), {StageOn({0, 1}, {0, 1}), StageOn({2}, {2, 3})}, {.bytes = 1});
  ASSERT_EQ(reductions.size(), 2u);
  for (const PlannedReduction& planned : reductions)
    EXPECT_EQ(planned.mark, PlannedReduction::kEnd) << "one has one parameter, one two stages";
}

TEST(Reductions, PlanningOnlyNodesAreCutByTheirBytes) {
  const std::vector<PlannedReduction> buckets =
      MakeReductions(testing::TwoProfiledNodes(), {StageOn({0, 1}, {0, 1})}, {.bytes = 1});
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].mark, 1);
  EXPECT_EQ(buckets[1].mark, 0);
  EXPECT_EQ(buckets[0].reduction.bytes, 400);
}

// A backward pass of three microseconds a layer.
class TimedCosts : public testing::FixedCosts {
 public:
  explicit TimedCosts(const Graph& graph) : FixedCosts(0, 0, graph) {}
  OperatorTime Time(NodeId, const DeviceKind&, int64_t) const override {
    return {0, 3 * kMicrosecond, kMicrosecond, 2 * kMicrosecond};
  }
};

TEST(Reductions, TheNumberOfBucketsSuitsTheLinks) {
  const Graph graph = testing::ChainGraph(64);
  std::vector<int32_t> nodes(64);
  std::iota(nodes.begin(), nodes.end(), 0);
  const TimedCosts costs(graph);
  const auto buckets = [&](double bytes_per_second, Nanos latency) {
    const Cluster cluster = testing::FlatCluster(2, kGiB, latency, bytes_per_second);
    ProgramStage stage = StageOn(nodes, {0, 1});
    stage.micro_batch = 2;
    return MakeReductions(graph, {stage}, {0, &costs, &cluster}).size();
  };
  const size_t many = buckets(2e6, 0);
  EXPECT_GE(many, 32u) << "nothing speaks against as many as there are layers";
  const size_t fewer = buckets(2e6, 2 * kMicrosecond);
  EXPECT_GT(fewer, 1u);
  EXPECT_LT(fewer, many);
  EXPECT_EQ(buckets(1e15, kMicrosecond), 1u) << "latency is all they take";
}

TEST(Reductions, TheNormIsOneNumberOverAllDevices) {
  const Reduction norm = MakeNormReduction({StageOn({0}, {2, 0}), StageOn({1}, {0, 1})});
  EXPECT_TRUE(norm.gradient_norm);
  EXPECT_EQ(norm.bytes, 8);
  EXPECT_THAT(norm.devices, ElementsAre(DeviceId(0), DeviceId(1), DeviceId(2)));
  EXPECT_THAT(norm.stages, ElementsAre(StageId(0), StageId(1)));
  EXPECT_THAT(norm.parameters, IsEmpty());
}

}  // namespace
}  // namespace stagewright
