#include "planner_service/planners/pfeife/peak_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/pfeife/build_strategy.h"
#include "tests/planner_service/planners/pfeife/pfeife_cases.h"
#include "tests/support/clusters.h"
#include "tests/support/model_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright::pfeife {
namespace {

using testing::FlatCluster;
using testing::Rng;
using testing::Uniform;

std::vector<Bytes> Estimated(const LoopedShape& shape, bool recompute, const SliceMemory& memory,
                             const SliceCosts& costs, ReceivePosting posting = {}) {
  PeakMemory peaks(shape, recompute, posting);
  const std::vector<Bytes> estimate = peaks.Estimate(memory, costs);
  const std::vector<Bytes> most = peaks.AtMost(memory, costs);
  for (size_t r = 0; r < estimate.size(); ++r) EXPECT_LE(estimate[r], most[r]);
  return estimate;
}

// 1F1B on two devices: the first holds two micro-batches, the second one.
TEST(PeakMemoryTest, MicroBatchesInFlight) {
  const LoopedShape shape = MakeShape(2, 1, 4, 4, 0);
  const SliceCosts costs{{10, 10}, {20, 20}, {{0, 1, 1, 1, 0, 0}}};
  EXPECT_EQ(Estimated(shape, false, {{1000, 2000}, {9, 5}, {1, 2}, {100, 200}}, costs),
            (std::vector<Bytes>{1120, 2207}));
  // A recomputing device holds what a backward pass needs for one micro-batch only.
  EXPECT_EQ(Estimated(shape, true, {{1000, 2000}, {9, 5}, {1, 2}, {100, 200}}, costs),
            (std::vector<Bytes>{1110, 2207}));
}

// The reader holds the activation that it works on and the next one, which it is ready to receive;
// and a gradient from when its backward pass begins until it is sent. The other device is ready for
// a gradient when it has run the forward pass, and takes another while it works on one.
TEST(PeakMemoryTest, MessagesOnTheirWay) {
  const LoopedShape shape = MakeShape(2, 1, 4, 4, 0);
  const SliceMemory nothing{{0, 0}, {0, 0}, {0, 0}, {0, 0}};
  EXPECT_EQ(Estimated(shape, false, nothing, {{10, 10}, {20, 20}, {{0, 1, 1, 1, 0, 7}}}),
            (std::vector<Bytes>{0, 14}));
  EXPECT_EQ(Estimated(shape, false, nothing, {{10, 10}, {20, 20}, {{0, 1, 1, 1, 3, 0}}}),
            (std::vector<Bytes>{6, 3}));
  // It may take so long to send that the next one is there before.
  EXPECT_EQ(Estimated(shape, false, nothing, {{10, 10}, {20, 20}, {{0, 1, 1, 15, 3, 0}}}),
            (std::vector<Bytes>{6, 6}));
}

struct Ratios {
  double least = 1e9;
  double most = 0;
};

// Estimate over what the evaluator finds, by device.
Ratios RatiosOf(const Case& c, const LoopedShape& shape, const std::vector<int32_t>& cuts,
                ModelRules rules, ReceivePosting posting = {}) {
  ChainModel model(c.table, c.operators.dag().order(), 2, rules);
  SliceCosts costs;
  model.Slices(cuts, Devices(shape.devices), costs);
  const std::vector<Bytes> peaks =
      Estimated(shape, rules.recompute, model.Memory(cuts), costs, posting);
  const auto strategy =
      BuildStrategy(model, cuts, Devices(shape.devices), shape, StrategyKind::kGraph);
  EXPECT_TRUE(strategy.ok()) << strategy.status();
  EvaluateOptions options;
  options.posting = posting;
  const auto judged = Evaluate(c.graph, c.cluster, *c.costs, *strategy, options);
  EXPECT_TRUE(judged.ok()) << judged.status();
  Ratios ratios;
  for (const DeviceUse& use : judged->devices) {
    const double ratio = static_cast<double>(peaks[use.device.index()]) /
                         static_cast<double>(std::max<Bytes>(1, use.peak_memory));
    ratios.least = std::min(ratios.least, ratio);
    ratios.most = std::max(ratios.most, ratio);
  }
  return ratios;
}

// Nearer than the paper's table 5, which is up to 15 % over and at most 4 % under; there beside
// measured GPUs, here beside the evaluator.
constexpr double kUnder = 0.97;
constexpr double kOver = 1.10;

void ExpectNearOnChain(const Graph& graph, int32_t devices, bool recompute, double over) {
  const Case c(Graph(graph), FlatCluster(devices, 1024 * kGiB), 4 * devices);
  for (int32_t loops : {1, 2, 3}) {
    for (const LoopedShape& shape : PossibleShapes(devices, loops, 2 * devices)) {
      SCOPED_TRACE(ToString(shape));
      ChainModel model(c.table, c.operators.dag().order(), 2);
      const Ratios ratios =
          RatiosOf(c, shape, model.EvenTime(shape.slices()), {.recompute = recompute});
      EXPECT_GE(ratios.least, kUnder);
      EXPECT_LE(ratios.most, over);
    }
  }
}

TEST(PeakMemoryTest, IsWhatTheEvaluatorFindsOnChains) {
  ExpectNearOnChain(testing::UnevenChain(24), 3, false, kOver);
  ExpectNearOnChain(testing::UnevenChain(48), 8, false, kOver);
  ExpectNearOnChain(
      testing::ProfiledChain(30, {kMillisecond, 2 * kMillisecond, 4 * kMiB, kMiB, {}}), 4, false,
      kOver);
}

// Devices that recompute hold little but messages, of which one is 5 to 8 % here; the estimate may
// have one or two more under way than share their links in the end.
TEST(PeakMemoryTest, IsNearOnChainsThatRecompute) {
  ExpectNearOnChain(testing::UnevenChain(24), 3, true, 1.20);
  ExpectNearOnChain(testing::UnevenChain(48), 8, true, 1.20);
}

// Random graphs exchange more than they hold: a message is up to a fifth of the peak.
TEST(PeakMemoryTest, IsNearOnTangledGraphs) {
  Rng random(6);
  double sum = 0;
  for (int i = 0; i < 40; ++i) {
    const Case c(testing::RandomProfile(random, 16), FlatCluster(3, 1024 * kGiB), 12);
    const auto shapes = PossibleShapes(3, 1 + i % 3, 6);
    const LoopedShape& shape = shapes[Uniform(random, 0, static_cast<int64_t>(shapes.size()) - 1)];
    SCOPED_TRACE(ToString(shape));
    ChainModel model(c.table, c.operators.dag().order(), 2);
    const Ratios ratios =
        RatiosOf(c, shape, model.EvenTime(shape.slices()), {.recompute = i % 4 == 3});
    EXPECT_GE(ratios.least, kUnder);
    EXPECT_LE(ratios.most, 1.25);
    sum += ratios.most;
  }
  EXPECT_LE(sum / 40, kOver);
}

// A message is as large as what a slice keeps, so that every receive that is posted counts.
TEST(PeakMemoryTest, FollowsTheRuleOfPosting) {
  const Case c(testing::ProfiledChain(24, {kMillisecond, 2 * kMillisecond, 4 * kMiB, 0, {}}),
               FlatCluster(4, 1024 * kGiB), 16);
  const LoopedShape shape = MakeShape(4, 3, 8, 4, 0);
  ChainModel model(c.table, c.operators.dag().order(), 2);
  const std::vector<int32_t> cuts = model.EvenTime(shape.slices());
  SliceCosts costs;
  model.Slices(cuts, Devices(4), costs);
  std::vector<Bytes> most;
  for (int32_t ahead : {1, 2, 4, 8}) {
    const Ratios ratios = RatiosOf(c, shape, cuts, {.recompute = true}, {ahead});
    EXPECT_GE(ratios.least, kUnder) << ahead;
    EXPECT_LE(ratios.most, 1.20) << ahead;
    const auto peaks = Estimated(shape, true, model.Memory(cuts), costs, {ahead});
    most.push_back(*std::max_element(peaks.begin(), peaks.end()));
  }
  EXPECT_GT(most.back(), most.front());
}

}  // namespace
}  // namespace stagewright::pfeife
