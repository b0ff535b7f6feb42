#include "planner_service/planners/pfeife/peak_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/pfeife/build_strategy.h"
#include "tests/planner_service/planners/pfeife/pfeife_cases.h"
#include "tests/support/model_graphs.h"

namespace stagewright::pfeife {
namespace {

using testing::Draw;
using testing::FlatCluster;
using testing::Random;

TEST(PeakMemoryTest, MicroBatchesInFlightAndGradientsThatWait) {
  // 1F1B on two devices: the first holds two micro-batches, the second one.
  const LoopedShape shape = MakeShape(2, 1, 4, 4, 0);
  DependencyGraph graph = DependencyGraph::Create(shape).value();
  SliceCosts costs{{10, 10}, {20, 20}, {{0, 1, 1, 1, 0}}};
  graph.LongestPath(costs);
  EXPECT_EQ(PeakMemory({{1000, 2000}, {10, 7}}, graph, costs), (std::vector<Bytes>{1020, 2007}));
  // Nothing waits at the first device, one gradient of 3 bytes at the second.
  costs.messages[0].back_bytes = 3;
  EXPECT_EQ(PeakMemory({{1000, 2000}, {10, 7}}, graph, costs), (std::vector<Bytes>{1020, 2010}));
}

// Estimate over what the evaluator finds, of the device where it is least.
double LeastRatio(const Case& c, const LoopedShape& shape, const std::vector<int32_t>& cuts,
                  ModelRules rules) {
  ChainModel model(c.table, c.operators.dag().order(), 2, rules);
  DependencyGraph graph = DependencyGraph::Create(shape).value();
  SliceCosts costs;
  model.Slices(cuts, Devices(shape.devices), costs);
  graph.LongestPath(costs);
  const std::vector<Bytes> peaks = PeakMemory(model.Memory(cuts), graph, costs);
  const auto strategy =
      BuildStrategy(model, cuts, Devices(shape.devices), shape, StrategyKind::kGraph);
  EXPECT_TRUE(strategy.ok()) << strategy.status();
  const auto judged = Evaluate(c.graph, c.cluster, *c.costs, *strategy, {});
  EXPECT_TRUE(judged.ok()) << judged.status();
  double least = 1e9;
  for (const DeviceUse& use : judged->devices) {
    least = std::min(least, static_cast<double>(peaks[use.device.index()]) /
                                static_cast<double>(std::max<Bytes>(1, use.peak_memory)));
  }
  return least;
}

TEST(PeakMemoryTest, IsNearWhatTheEvaluatorFindsOnChains) {
  const Case c(testing::UnevenChain(24), FlatCluster(3, 1024 * kGiB), 12);
  for (int32_t loops : {1, 2, 3}) {
    for (const LoopedShape& shape : PossibleShapes(3, loops, 6)) {
      for (bool recompute : {false, true}) {
        SCOPED_TRACE(ToString(shape));
        ChainModel model(c.table, c.operators.dag().order(), 2);
        const double ratio =
            LeastRatio(c, shape, model.EvenTime(shape.slices()), {.recompute = recompute});
        EXPECT_GE(ratio, 0.9);  // Messages of the simulator may wait longer.
        EXPECT_LE(ratio, 3);
      }
    }
  }
}

// Where values skip slices, messages wait longer than estimated; not by much, mostly.
TEST(PeakMemoryTest, IsNearOnTangledGraphs) {
  Random random(6);
  double sum = 0;
  for (int i = 0; i < 40; ++i) {
    const Case c(testing::RandomProfile(random, 16), FlatCluster(3, 1024 * kGiB), 12);
    const auto shapes = PossibleShapes(3, 1 + i % 3, 6);
    const LoopedShape& shape = shapes[Draw(random, 0, static_cast<int64_t>(shapes.size()) - 1)];
    ChainModel model(c.table, c.operators.dag().order(), 2);
    const double ratio = LeastRatio(c, shape, model.EvenTime(shape.slices()), {});
    EXPECT_GE(ratio, 0.6) << ToString(shape);
    sum += std::min(ratio, 1.0);
  }
  EXPECT_GE(sum / 40, 0.9);
}

}  // namespace
}  // namespace stagewright::pfeife
