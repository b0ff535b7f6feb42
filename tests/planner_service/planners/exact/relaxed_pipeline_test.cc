#include "planner_service/planners/exact/relaxed_pipeline.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "planner_service/evaluator/evaluator.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::MakeStrategy;
using testing::ProfiledGraph;

// One device a stage, and messages that hardly ever meet on a port.
TEST(RelaxedPipelineTest, IsJustBelowTheSimulatorWithLittleContention) {
  const Graph graph = ProfiledGraph(
      {{1000, 2500, 1000, 1000, {}}, {3000, 5500, 3000, 500, {0}}, {2000, 4100, 500, 4000, {1}}});
  const Cluster cluster = FlatCluster(3, kGiB, 700, 1e9);
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const auto costs = MakeAnalyticCostModel(graph);
  const Problem problem{&graph, &operators, &cluster, costs.get(), 12, Optimizer::kSgd};
  const OperatorCosts least(problem);
  const StageTimes times = MakeStageTimes(least, {{DeviceId(0)}, {DeviceId(1)}, {DeviceId(2)}}, 2);
  PipelineCase pipeline;
  for (int32_t s = 0; s < 3; ++s) {
    PipelineCase::StageCase& stage = pipeline.stages.emplace_back();
    stage.forward = {times.rows[s].forward[s]};
    stage.backward = {times.rows[s].backward[s]};
    stage.micro_batches_in_flight = 3 - s;
    stage.update = times.rows[s].update[s];
  }
  pipeline.links = {{0, 1, 1000, 1000, true}, {1, 2, 3000, 3000, true}};
  const Strategy strategy = MakeStrategy(graph, {{0}, {1}, {2}}, {{0}, {1}, {2}}, 12, 2);
  EvaluateOptions evaluate;
  evaluate.optimizer = Optimizer::kSgd;
  const auto evaluation = Evaluate(graph, cluster, *costs, strategy, evaluate).value();
  const double time = LeastPipelineTime(cluster, times, pipeline, 1e18);
  EXPECT_LE(time, static_cast<double>(evaluation.iteration_time));
  EXPECT_GE(time, static_cast<double>(evaluation.iteration_time) * 0.98);
  // It gives up early, above what it was told to beat.
  EXPECT_GT(LeastPipelineTime(cluster, times, pipeline, time / 2), time / 2);
}

}  // namespace
}  // namespace stagewright
