#include "tests/worker_daemon/support/plans_by_hand.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "common/policies/zero_bubble.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/orders.h"
#include "common/strategy/stage_edges.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {

Strategy PlanByHand(const Graph& graph, int64_t mini_batch, const std::vector<HandStage>& stages) {
  Strategy strategy;
  strategy.mini_batch = mini_batch;
  int node = 0, device = 0;
  for (const HandStage& hand : stages) {
    Stage& stage = strategy.stages.emplace_back();
    for (; node <= hand.last; ++node) stage.nodes.emplace_back(node);
    stage.micro_batch = hand.micro_batch;
    stage.recompute = hand.recompute;
    for (int r = 0; r < hand.replicas; ++r) stage.devices.emplace_back(device++);
  }
  EXPECT_EQ(node, graph.size());
  strategy.edges = StageEdges(graph, StrategyKind::kGraph, strategy.stages);
  AssignInFlight(strategy);
  return strategy;
}

Strategy SplitByHand(const Graph& graph, int64_t mini_batch, const std::vector<HandStage>& stages) {
  Strategy strategy = PlanByHand(graph, mini_batch, stages);
  auto orders = ZeroBubbleH1Orders(graph, strategy);
  EXPECT_TRUE(orders.ok()) << orders.status();
  if (orders.ok()) SetOrders(graph, *std::move(orders), strategy);
  return strategy;
}

HandJob::HandJob(Graph graph, const std::map<std::string, at::Tensor>& data, int64_t steps) {
  at::set_num_threads(1);
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string stem = std::string(test->test_suite_name()) + "_" + test->name();
  spec.graph = std::make_shared<const Graph>(std::move(graph));
  spec.weights_path = WriteWeights(*spec.graph, stem + "_weights.safetensors");
  spec.data_path = spec.evaluation_path = TempPath(stem + "_data.safetensors");
  WriteTensors(spec.data_path, data);
  spec.training.optimizer.kind = Optimizer::kSgd;
  spec.training.optimizer.learning_rate = 0.1;
  spec.order = SampleOrder::kSequential;
  spec.steps = steps;
  spec.seed = 9;
  spec.step_timeout = absl::Seconds(30);
}

absl::StatusOr<TrainingResult> HandJob::Train(const Strategy& strategy) const {
  ASSIGN_OR_RETURN(const Programs programs, LowerBoth(*spec.graph, strategy));
  DeviceJob own = spec;
  own.program = programs.training;
  own.evaluation = programs.evaluation;
  return TrainLocally(own);
}

void ExpectSame(const TrainingResult& found, const TrainingResult& expected, double tolerance) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], tolerance * std::abs(expected.losses[i])) << i;
  for (const auto& [name, tensor] : expected.parameters) {
    ASSERT_TRUE(found.parameters.contains(name)) << name;
    const at::Tensor own = found.parameters.at(name);
    if (!tensor.is_floating_point()) {
      EXPECT_TRUE(at::equal(own, tensor)) << name;
      continue;
    }
    EXPECT_LT(RelativeError(own, tensor), tolerance) << name;
  }
}

}  // namespace stagewright::testing
