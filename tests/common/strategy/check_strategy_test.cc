#include "common/strategy/check_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/strategy/in_flight.h"
#include "common/strategy/strategy.h"
#include "tests/support/clusters.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using testing::LinearGraph;
using testing::MakeStages;

// 0 -> 1 -> 3 and 0 -> 2 -> 3, node 4 the loss.
class CheckStrategyTest : public ::testing::Test {
 protected:
  Graph graph_ = LinearGraph({{}, {0}, {0}, {1, 2}});
  Cluster cluster_ = testing::TestCluster(6);
  Strategy strategy_ =
      MakeStages(graph_, 8, {{{0}, {0, 4}, 2}, {{1}, {1}, 2}, {{2}, {2}, 2}, {{3, 4}, {3}, 2}});

  void ExpectBroken(const std::string& message) {
    const absl::Status status = CheckStrategy(graph_, cluster_, strategy_);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
};

TEST_F(CheckStrategyTest, AcceptsADiamond) {
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
}

TEST_F(CheckStrategyTest, AcceptsStagesThatShareADevice) {
  strategy_.stages[3].devices = {DeviceId(0)};
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
}

// Node 1 of the diamond normalises over the batch; the others do not.
GraphData WithNode1(const Graph& graph, const std::string& target) {
  GraphData data = graph.data();
  data.nodes[1].target = target;
  data.nodes[1].module = "layers.1";
  data.nodes[1].batch_dependent = true;
  return data;
}

TEST_F(CheckStrategyTest, C4BatchNormalisationSeesTheWholeMiniBatch) {
  graph_ = Graph::Create(WithNode1(graph_, "aten.batch_norm.default")).value();
  ExpectBroken(
      "C4: stage 1: node \"n1\" of module \"layers.1\" needs the whole mini-batch of 8 samples in "
      "one pass on one device (its result depends on which samples share a forward pass), but the "
      "stage has micro-batches of 2 on 1 device; give it micro-batches of 8 on one device, or take "
      "the statistics over what a device has of a micro-batch (--batch-statistics micro)");
  strategy_.batch_statistics = BatchStatistics::kMicro;
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
  strategy_.batch_statistics = BatchStatistics::kSynchronised;
  ExpectBroken("its statistics cannot be synchronised, because stages exchange nothing inside");
  // Its stage alone has to run everything at once.
  strategy_.stages[1].micro_batch = 8;
  AssignInFlight(strategy_);
  for (auto statistics : {BatchStatistics::kWhole, BatchStatistics::kSynchronised}) {
    strategy_.batch_statistics = statistics;
    EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
  }
  strategy_.stages[1].devices = {DeviceId(1), DeviceId(5)};
  ExpectBroken("the stage has micro-batches of 8 on 2 devices");
}

TEST_F(CheckStrategyTest, C4OtherCouplingsOfSamplesAreNeverCut) {
  graph_ = Graph::Create(WithNode1(graph_, "aten.mm.default")).value();
  for (auto statistics :
       {BatchStatistics::kWhole, BatchStatistics::kMicro, BatchStatistics::kSynchronised}) {
    strategy_.batch_statistics = statistics;
    ExpectBroken("give it micro-batches of 8 on one device");
    EXPECT_THAT(std::string(CheckStrategy(graph_, cluster_, strategy_).message()),
                ::testing::Not(HasSubstr("--batch-statistics")));
  }
}

TEST_F(CheckStrategyTest, C4SharesAreWithinTheGraphsBounds) {
  GraphData data = graph_.data();
  data.samples = {2, 4};
  graph_ = Graph::Create(data).value();
  ExpectBroken(
      "C4: stage 0: micro-batches of 2 on 2 devices make forward passes of 1 samples, and the "
      "model "
      "takes at least 2 at once");
  strategy_.stages[0].devices = {DeviceId(0)};
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
  strategy_ = MakeStages(graph_, 16, {{{0, 1, 2, 3, 4}, {0, 1, 2}, 16}});
  // Shares of 6, 5 and 5.
  ExpectBroken("make forward passes of 6 samples, and the model takes at most 4 at once");
  strategy_ = MakeStages(graph_, 16, {{{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, 16}});
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());  // 4, 3, 3, 3, 3.
}

TEST_F(CheckStrategyTest, NamesIdsThatDoNotExist) {
  strategy_.stages[1].nodes = {NodeId(9)};
  ExpectBroken("stage 1: node 9 does not exist");
  strategy_.stages[1].nodes = {NodeId(1)};
  strategy_.stages[2].devices = {DeviceId(6)};
  ExpectBroken("stage 2: device 6 does not exist");
  strategy_.stages[2].devices = {DeviceId(2)};
  strategy_.edges.push_back({StageId(3), StageId(4)});
  ExpectBroken("edge 3 -> 4: the stage does not exist");
  strategy_.stages.clear();
  ExpectBroken("stages: there is none");
}

TEST_F(CheckStrategyTest, C1EveryNodeIsInExactlyOneStage) {
  strategy_.stages[1].nodes = {NodeId(1), NodeId(2)};
  ExpectBroken("C1: node \"n2\" is in stages 1 and 2");
  strategy_.stages[1].nodes = {NodeId(1)};
  strategy_.stages[3].nodes = {NodeId(3)};
  ExpectBroken("C1: node \"n4\" is in no stage");
  strategy_.stages[3].nodes.clear();
  ExpectBroken("C1: stage 3 has no node");
}

TEST_F(CheckStrategyTest, C1ReplicatedNodesAreConstant) {
  strategy_.stages[1].replicated = {NodeId(0)};
  ExpectBroken("C1: node \"n0\" is replicated in stage 1 and owned by stage 0");
  strategy_.stages[0].nodes = {NodeId(1)};
  strategy_.stages[1].nodes = {NodeId(2)};
  strategy_.stages[2].nodes = {NodeId(3)};
  strategy_.stages[3].nodes = {NodeId(4)};
  ExpectBroken(
      "C1: node \"n0\" is replicated in stage 1 but reads \"layer0\", which training changes");
}

// The graph with a buffer that nodes 1 and 2 read through a node of its own, replicated where they
// are, and a counter that node 3's stage updates.
class CheckStateTest : public CheckStrategyTest {
 protected:
  CheckStateTest() {
    GraphData data = graph_.data();
    for (const char* name : {"table", "count"})
      data.parameters.push_back({name, DType::kFloat32, {1}, false, true, {}});
    table_ = static_cast<int>(data.parameters.size()) - 2;
    for (int p : {table_, table_ + 1}) {
      Node node;
      node.name = data.parameters[static_cast<size_t>(p)].name + "_node";
      node.target = "aten.cos.default";
      node.args = {{ParameterId(p)}};
      node.outputs = {{DType::kFloat32, {{0, 1}}}};
      data.nodes.push_back(node);
    }
    for (int reader : {1, 2})
      data.nodes[static_cast<size_t>(reader)].args.push_back({ValueRef{NodeId(5), 0}});
    data.state_updates = {{ParameterId(table_ + 1), {NodeId(6), 0}}};
    graph_ = *Graph::Create(data);
    for (size_t s : {1, 2}) strategy_.stages[s].replicated = {NodeId(5)};
    strategy_.stages[3].nodes.push_back(NodeId(6));
  }
  int table_ = 0;
};

TEST_F(CheckStateTest, C1ABufferMayBeReadInSeveralStages) {
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
}

TEST_F(CheckStateTest, C1AStateIsReadWhereItIsUpdated) {
  strategy_.stages[1].replicated.push_back(NodeId(6));
  strategy_.stages[3].nodes.pop_back();
  ExpectBroken(
      "C1: node \"count_node\" is replicated in stage 1 but reads \"count\", which training "
      "changes");
  GraphData data = graph_.data();
  data.nodes[1].args.push_back({ParameterId(table_ + 1)});
  graph_ = *Graph::Create(data);
  strategy_.stages[1].replicated.pop_back();
  strategy_.stages[3].nodes.push_back(NodeId(6));
  ExpectBroken("C1: node \"n1\" of stage 1 reads \"count\", which stage 3 changes");
}

TEST_F(CheckStateTest, C1WhatUpdatesAStateIsInAStage) {
  strategy_.stages[3].nodes.pop_back();
  ExpectBroken("C1: node \"count_node\" is in no stage");
}

TEST_F(CheckStrategyTest, C1NodesAreInTopologicalOrder) {
  strategy_.stages[3].nodes = {NodeId(4), NodeId(3)};
  ExpectBroken("C1: stage 3: node \"n4\" reads node \"n3\", which is listed after it");
}

TEST_F(CheckStrategyTest, C1StagesAreConvex) {
  strategy_ = MakeStages(graph_, 8, {{{0, 3}, {0}, 2}, {{1}, {1}, 2}, {{2, 4}, {2}, 2}});
  ExpectBroken("C1: stage 0 is not convex: a path leaves it through node \"n2\"");
}

TEST_F(CheckStrategyTest, C2EveryDependencyIsAnEdgeAndEveryEdgeOne) {
  strategy_.edges.erase(strategy_.edges.begin());
  ExpectBroken("C2: stage 1 reads from stage 0 but there is no edge between them");
  strategy_.edges = DataEdges(graph_, strategy_.stages);
  strategy_.edges.insert(strategy_.edges.begin() + 2, {StageId(0), StageId(3)});
  ExpectBroken("C2: edge 0 -> 3 carries no data");
  std::swap(strategy_.edges[0], strategy_.edges[1]);
  ExpectBroken("C2: edges are not sorted and unique");
}

TEST_F(CheckStrategyTest, C2StagesAreListedInTopologicalOrder) {
  std::swap(strategy_.stages[0], strategy_.stages[1]);
  strategy_.edges = DataEdges(graph_, strategy_.stages);
  ExpectBroken("C2: edge 1 -> 0: stages are not listed in topological order");
}

TEST_F(CheckStrategyTest, C2SequentialStrategiesAreChained) {
  strategy_.kind = StrategyKind::kSequential;
  ExpectBroken("C2: a sequential strategy has no edge 1 -> 2");
  strategy_.edges.push_back({StageId(1), StageId(2)});
  std::sort(strategy_.edges.begin(), strategy_.edges.end());
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
}

TEST_F(CheckStrategyTest, C3EveryStageHasDevicesEachOnce) {
  strategy_.stages[0].devices = {DeviceId(0), DeviceId(4), DeviceId(0)};
  ExpectBroken("C3: stage 0 lists device 0 \"d0\" twice");
  strategy_.stages[0].devices = {DeviceId(0), DeviceId(4), DeviceId(5)};
  ExpectBroken("C3: stage 0 has 3 devices for micro-batches of 2 samples");
  strategy_.stages[0].devices.clear();
  ExpectBroken("C3: stage 0 has no device");
}

TEST_F(CheckStrategyTest, C4BatchesAndSchedulesMakeSense) {
  strategy_.stages[1].micro_batch = 3;
  ExpectBroken("C4: stage 1: micro-batch 3 does not divide the mini-batch 8");
  strategy_.stages[1].micro_batch = 2;
  strategy_.stages[1].schedule.k = 0;
  ExpectBroken("C4: stage 1: k is 0, not positive");
  strategy_.stages[1].schedule.k = 3;
  ExpectBroken(
      "C4: stage 1: 4 samples in flight is not a multiple of the micro-batch 2 from 6 to 8");
  strategy_.stages[1].schedule = {3, 1};
  ExpectBroken("C4: stage 1: 3 samples in flight");
  strategy_.stages[1].schedule = {10, 1};
  ExpectBroken("C4: stage 1: 10 samples in flight");
  strategy_.mini_batch = 0;
  ExpectBroken("C4: mini_batch is 0");
  strategy_.mini_batch = int64_t{1} << 40;
  ExpectBroken("C4: mini_batch is 1099511627776");
}

TEST_F(CheckStrategyTest, AsynchronousStrategiesAreOneStagePerDeviceWithEqualMicroBatches) {
  strategy_.asynchronous = true;
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
  strategy_.stages[2].schedule = {4, 2};
  ExpectBroken("C4: an asynchronous strategy has k = 1, and stage 2 2");
  strategy_.stages[2] = strategy_.stages[1];
  strategy_.stages[2].nodes = {NodeId(2)};
  ExpectBroken("C3: device 1 has stages 1 and 2; of an asynchronous strategy it has one");
  strategy_.stages[2].devices = {DeviceId(2)};
  strategy_.stages[2].micro_batch = 4;
  strategy_.stages[2].schedule = {4, 1};
  ExpectBroken("C4: an asynchronous strategy has equal micro-batches, and stage 2 has 4 samples");
}

TEST_F(CheckStrategyTest, VerticalSyncIsOfAsynchronousStrategies) {
  strategy_.vertical_sync = true;
  ExpectBroken("C4: vertical sync is of asynchronous strategies, and this one is synchronous");
  strategy_.asynchronous = true;
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
}

TEST_F(CheckStrategyTest, C4SchedulesThatAreTooLongAreRefused) {
  strategy_.mini_batch = int64_t{1} << 30;
  for (Stage& stage : strategy_.stages) stage.micro_batch = int64_t{1} << 20;
  AssignInFlight(strategy_);
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
  strategy_.stages[2].micro_batch = 1;
  AssignInFlight(strategy_);
  ExpectBroken(
      "C4: stage 2: 1073741824 micro-batches of 1 samples on 1 devices make the schedule too "
      "long: more than 4194304 pieces");
  // A mini-batch with too many pieces for a program that is looked at over several steps.
  strategy_.mini_batch = 1 << 18;
  for (Stage& stage : strategy_.stages) stage.micro_batch = 2;
  AssignInFlight(strategy_);
  EXPECT_EQ(CheckStrategy(graph_, cluster_, strategy_), absl::OkStatus());
  strategy_.asynchronous = true;
  ExpectBroken("more than 524288 pieces");
  strategy_.asynchronous = false;
  // Few enough shares, but not with their transfers over three edges.
  strategy_.mini_batch = int64_t{1} << 21;
  for (Stage& stage : strategy_.stages) stage.micro_batch = int64_t{1} << 20;
  strategy_.stages[0].micro_batch = 2;
  AssignInFlight(strategy_);
  ExpectBroken("C4: stage 0: 1048576 micro-batches of 2 samples on 2 devices");
}

}  // namespace
}  // namespace stagewright
