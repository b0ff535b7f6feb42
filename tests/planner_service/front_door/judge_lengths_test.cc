#include "planner_service/front_door/judge_lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/memory/message_buffers.h"
#include "tests/support/clusters.h"
#include "tests/support/graph_builder.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;

TensorMeta Batched(int64_t length, int64_t width) {
  return {DType::kFloat32, {{1, 0}, {0, length}, {0, width}}};
}

// Three linear layers over x: float32[samples, length, 64], and the mean of what they give.
Graph OfLength(int64_t length) {
  GraphData data;
  data.name = "lengths";
  data.inputs = {{"x", Batched(length, 64), InputRole::kFeature}};
  for (int64_t i = 0; i < 3; ++i) {
    data.parameters.push_back({"w" + std::to_string(i), DType::kFloat32, {64, 64}});
    Node node;
    node.name = "linear" + std::to_string(i);
    node.target = "aten.linear.default";
    node.args = {i == 0 ? Argument{InputId(0)} : Argument{ValueRef{NodeId(i - 1), 0}},
                 {ParameterId(i)}};
    node.outputs = {Batched(length, 64)};
    data.nodes.push_back(node);
  }
  Node mean;
  mean.name = "mean";
  mean.target = "aten.mean.default";
  mean.args = {{ValueRef{NodeId(2), 0}}};
  mean.outputs = {{DType::kFloat32, {}}};
  data.nodes.push_back(mean);
  data.loss = ValueRef{NodeId(3), 0};
  auto graph = Graph::Create(std::move(data));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

class JudgeLengthsTest : public ::testing::Test {
 protected:
  JudgeLengthsTest() {
    request_.graph = &graph_;
    request_.lengths = &lengths_;
    request_.cluster = &cluster_;
    request_.mini_batch = 8;
    request_.options.num_stages = 2;
  }
  const Graph graph_ = OfLength(512);
  std::vector<Graph> lengths_ = {OfLength(128), OfLength(32)};
  Cluster cluster_ = FlatCluster(2, kGiB);
  PlanRequest request_;
};

TEST_F(JudgeLengthsTest, TheStrategyIsJudgedForEveryLength) {
  SearchContext context;
  const auto response = SolvePlan(request_, context);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_TRUE(response->best) << response->reason;
  const JudgedPlan& best = *response->best;
  ASSERT_EQ(best.lengths.size(), 2u);
  EXPECT_EQ(best.lengths[0].samples, "x[128, 64]");
  EXPECT_LT(best.lengths[0].evaluation.iteration_time, best.evaluation.iteration_time);
  EXPECT_LT(best.lengths[1].evaluation.iteration_time, best.lengths[0].evaluation.iteration_time);
  for (const LengthPlan& length : best.lengths) {
    const Program& program = length.evaluation.program;
    ASSERT_EQ(program.stages.size(), best.plan.program.stages.size());
    for (size_t s = 0; s < program.stages.size(); ++s) {
      EXPECT_EQ(program.stages[s].nodes, best.plan.program.stages[s].nodes);
      EXPECT_EQ(program.stages[s].devices, best.plan.program.stages[s].devices);
    }
  }
}

TEST_F(JudgeLengthsTest, EndsWhenItIsStopped) {
  const Strategy strategy = testing::MakeStrategy(graph_, {{0, 1}, {2, 3}}, {{0}, {1}}, 8, 2);
  PlanRequest alone = request_;
  alone.lengths = nullptr;
  auto judged = JudgeStrategy(alone, strategy, "test");
  ASSERT_TRUE(judged.ok()) << judged.status();
  const absl::Status late = JudgeLengths(request_, *judged, [] { return true; });
  EXPECT_TRUE(absl::IsCancelled(late)) << late;
}

TEST_F(JudgeLengthsTest, ADeviceHoldsTheMessageBuffersOfAll) {
  const Strategy strategy =
      testing::MakeStrategy(graph_, {{0, 1}, {2, 3}}, {{0}, {1}}, /*mini_batch=*/8,
                            /*micro_batch=*/2);
  const auto answer = JudgeStrategy(request_, strategy, "test");
  ASSERT_TRUE(answer.ok()) << answer.status();
  const JudgedPlan& best = *answer;
  PlanRequest alone = request_;
  alone.lengths = nullptr;
  const auto judged = JudgeStrategy(alone, strategy, "test");
  ASSERT_TRUE(judged.ok()) << judged.status();
  EXPECT_TRUE(judged->lengths.empty());
  for (size_t row = 0; row < best.plan.program.devices.size(); ++row) {
    Bytes others = 0;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      const Program& program = best.lengths[i].evaluation.program;
      others +=
          BufferBytes(MessageTypes(lengths_[i], Precision::kGraph), program, program.devices[row]);
    }
    EXPECT_GT(others, 0);
    EXPECT_EQ(best.plan.program.devices[row].resident,
              judged->plan.program.devices[row].resident + others);
    EXPECT_EQ(best.evaluation.devices[row].peak_memory,
              judged->evaluation.devices[row].peak_memory + others);
  }
  // A device that has room for the one, and not for the buffers of the others.
  Bytes most = 0;
  for (const DeviceUse& device : judged->evaluation.devices)
    most = std::max(most, device.peak_memory);
  const Cluster small = FlatCluster(2, most);
  request_.cluster = alone.cluster = &small;
  EXPECT_TRUE(JudgeStrategy(alone, strategy, "test").ok());
  const auto refused = JudgeStrategy(request_, strategy, "test");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("with the message buffers of the other lengths"));
}

TEST_F(JudgeLengthsTest, AnAsynchronousPlanHasOneLength) {
  request_.options.asynchronous = true;
  SearchContext context;
  const auto response = SolvePlan(request_, context);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_FALSE(response->best);
  EXPECT_EQ(response->termination, Termination::kInfeasible);
  EXPECT_THAT(response->reason, HasSubstr("samples of several lengths need a synchronous plan"));
}

}  // namespace
}  // namespace stagewright
