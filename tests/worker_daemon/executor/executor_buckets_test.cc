// Gradients are summed in buckets while the backward pass that makes others goes on, and training
// gives what one device gives.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/program/trace.h"
#include "tests/worker_daemon/support/hand_job.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/plans/plans_by_hand.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

constexpr int64_t kMiniBatch = 8;
constexpr int64_t kSteps = 3;

std::map<std::string, at::Tensor> Data(int64_t width, int64_t mini_batch = kMiniBatch) {
  return {{"x", Random({mini_batch * kSteps, width}, 31)},
          {"target", Random({mini_batch * kSteps, width}, 32)}};
}

// Layers of which the first and the last share their weight, one is frozen, and one takes the sum
// of two weights, one of them through a view, so that both gradients come in one memory.
struct Model {
  explicit Model(int64_t width, int more_layers = 0) {
    const TensorMeta rows = Meta({-1, width});
    const TensorMeta square = Meta({width, width});
    const int x = make.AddInput("x", {-1, width});
    const int target = make.AddInput("target", {-1, width});
    const int tied = make.AddParameter("tied", {width, width});
    const int frozen = make.AddParameter("frozen", {width, width}, /*trainable=*/false);
    const int plain = make.AddParameter("plain", {width, width});
    const int viewed = make.AddParameter("viewed", {width * width});
    const auto layer = [&](Argument value, Argument weight) {
      const int product = make.AddNode("aten.linear.default", {value, weight}, {rows});
      return Value(make.AddNode("aten.tanh.default", {Value(product)}, {rows}));
    };
    Argument value = layer(In(x), Param(tied));
    value = layer(value, Param(frozen));
    const int view = make.AddNode("aten.view.default",
                                  {Param(viewed), List({Int(width), Int(width)})}, {square});
    const int sum = make.AddNode("aten.add.Tensor", {Param(plain), Value(view)}, {square});
    value = layer(value, Value(sum));
    for (int i = 0; i < more_layers; ++i) {
      const int weight = make.AddParameter("more" + std::to_string(i), {width, width});
      value = layer(value, Param(weight));
    }
    const int last = make.AddLinear("head", value, width, width);
    const int out = make.AddNode("aten.linear.default", {Value(last), Param(tied)}, {rows});
    loss = make.AddNode("aten.mse_loss.default", {Value(out), In(target)}, {Meta({})});
    graph.emplace(make.Finish(loss));
  }
  GraphMaker make;
  int loss = 0;
  std::optional<Graph> graph;
};

// Sums that start within the last backward pass of their stage, weight halves included.
int64_t Overlapping(const std::vector<TraceEvent>& trace) {
  return std::count_if(trace.begin(), trace.end(), [&](const TraceEvent& sum) {
    if (sum.action.kind != ActionKind::kAllReduce) return false;
    return std::any_of(trace.begin(), trace.end(), [&](const TraceEvent& pass) {
      const bool ends = pass.action.kind == ActionKind::kBackward ||
                        pass.action.kind == ActionKind::kBackwardWeight;
      return ends && pass.device == sum.device && pass.step == sum.step &&
             pass.action.stage == sum.action.stage && pass.start <= sum.start &&
             sum.start < pass.end;
    });
  });
}

struct Way {
  const char* name;
  HandStage stage;
  bool split = false;
};

class Buckets : public ::testing::TestWithParam<Way> {};

TEST_P(Buckets, TrainTheSameAsOneDevice) {
  const auto& [name, stage, split] = GetParam();
  const Model model(6, 3);
  HandJob job(*model.graph, Data(6), kSteps);
  const auto expected = job.Train(PlanByHand(*model.graph, kMiniBatch, {{model.loss, kMiniBatch}}));
  ASSERT_TRUE(expected.ok()) << expected.status();
  HandStage all = stage;
  all.last = model.loss;
  Strategy strategy = split ? SplitByHand(*model.graph, kMiniBatch, {all})
                            : PlanByHand(*model.graph, kMiniBatch, {all});
  for (const int64_t bytes : {1, 300, 600}) {
    SCOPED_TRACE(bytes);
    strategy.bucket_bytes = Bytes(bytes);
    const auto found = job.Train(strategy);
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectSame(*found, *expected);
    const auto programs = LowerBoth(*model.graph, strategy);
    EXPECT_GT(programs->training->reductions.size(), 2u);
    EXPECT_EQ(CheckTrace(*programs->training, found->trace), absl::OkStatus());
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Buckets,
                         ::testing::Values(Way{"whole", {0, 8, 2}}, Way{"micro_batches", {0, 2, 2}},
                                           Way{"three_replicas", {0, 4, 3}},
                                           Way{"recomputed", {0, 4, 2, true}},
                                           Way{"split", {0, 2, 2}, true}),
                         [](const auto& param) { return std::string(param.param.name); });

// Layers large enough that the pass is far from its end when the first gradients are complete.
TEST(BucketsOverlap, SumsRunWithinTheBackwardPass) {
  at::set_num_threads(1);
  constexpr int64_t kWidth = 256;
  constexpr int64_t kMany = 512;  // Samples, so that passes take longer than sums.
  const Model model(kWidth, 6);
  HandJob job(*model.graph, Data(kWidth, kMany), kSteps);
  Strategy strategy = PlanByHand(*model.graph, kMany, {{model.loss, kMany, 2}});
  const auto whole = job.Train(strategy);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(Overlapping(whole->trace), 0);
  strategy.bucket_bytes = 1;
  const auto programs = LowerBoth(*model.graph, strategy);
  ASSERT_TRUE(programs.ok()) << programs.status();
  const auto buckets = std::ssize(programs->training->reductions);
  EXPECT_GT(buckets, 6);
  const auto found = job.Train(strategy);
  ASSERT_TRUE(found.ok()) << found.status();
  ExpectSame(*found, *whole);
  EXPECT_EQ(CheckTrace(*programs->training, found->trace), absl::OkStatus());
  EXPECT_GT(Overlapping(found->trace), buckets)
      << "of " << buckets << " sums on two devices in " << kSteps << " steps";
}

}  // namespace
}  // namespace stagewright::testing
