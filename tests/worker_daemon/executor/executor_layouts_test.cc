// Values whose samples do not lie along the first dimension, or not side by side, are cut at their
// samples: training is that of one device, whatever the micro-batches and replicas on either side.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker_daemon/support/hand_job.h"
#include "tests/worker_daemon/support/plans/plans_by_hand.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/training_result.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiniBatch = 8;
constexpr int64_t kTime = 4;
constexpr int64_t kSteps = 3;

TensorMeta Laid(std::vector<int64_t> shape, SampleLayout layout) {
  TensorMeta meta = Meta(std::move(shape));
  meta.layout = layout;
  return meta;
}

// What the test cuts after which node; a graph with its data.
struct Model {
  Graph graph;
  std::map<std::string, at::Tensor> data;
  std::vector<int> cuts;
};

int Dropout(GraphMaker& make, int x) {
  const TensorMeta meta = make.data.nodes[static_cast<size_t>(x)].outputs[0];
  return make.AddNode("aten.dropout.default", {Value(x), Real(0.3), Bool(true)}, {meta});
}

// [batch, time, 6] -> time first -> [time * batch, 6] -> linear -> back; cut where time is first
// and where time and batch are one dimension.
Model TimeMajor() {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, kTime, 6});
  const int target = make.AddInput("target", {-1, 3});
  const int weight = make.AddParameter("inner.weight", {6, 6});
  const int first =
      make.AddNode("aten.linear.default", {In(x), Param(weight)}, {Laid({-1, kTime, 6}, {0, 1})});
  const int turned = make.AddNode("aten.transpose.int", {Value(first), Int(0), Int(1)},
                                  {Laid({kTime, -1, 6}, {1, 1})});
  const int time_first = Dropout(make, turned);
  const int flat =
      make.AddNode("aten.reshape.default", {Value(time_first), List({Batch(kTime), Int(6)})},
                   {Laid({-kTime, 6}, {0, kTime})});
  const int tanh =
      make.AddNode("aten.tanh.default", {Value(flat)}, {Laid({-kTime, 6}, {0, kTime})});
  const int time_major = Dropout(make, tanh);
  const int outer = make.AddParameter("outer.weight", {5, 6});
  const int linear = make.AddNode("aten.linear.default", {Value(time_major), Param(outer)},
                                  {Laid({-kTime, 5}, {0, kTime})});
  const int apart =
      make.AddNode("aten.reshape.default", {Value(linear), List({Int(kTime), Batch(), Int(5)})},
                   {Laid({kTime, -1, 5}, {1, 1})});
  const int back = make.AddNode("aten.transpose.int", {Value(apart), Int(0), Int(1)},
                                {Laid({-1, kTime, 5}, {0, 1})});
  const int row = make.AddNode("aten.reshape.default", {Value(back), List({Batch(), Int(20)})},
                               {Laid({-1, 20}, {0, 1})});
  const int out = make.AddLinear("last", Value(row), 20, 3);
  const int loss = make.AddNode("aten.mse_loss.default", {Value(out), In(target)}, {Meta({})});
  return {make.Finish(loss, out),
          {{"x", Random({kMiniBatch * kSteps, kTime, 6}, 3)},
           {"target", Random({kMiniBatch * kSteps, 3}, 4)}},
          {time_first, time_major, linear, apart}};
}

// Two inputs through one tower as [2 * batch], then taken apart.
Model Siamese() {
  GraphMaker make;
  const int left = make.AddInput("left", {-1, 6});
  const int right = make.AddInput("right", {-1, 6});
  const TensorMeta both_meta = Laid({-2, 6}, {0, 2});
  const int both = make.AddNode("aten.cat.default", {List({In(left), In(right)})}, {both_meta});
  const int weight = make.AddParameter("tower.weight", {6, 6});
  const int tower = make.AddNode("aten.linear.default", {Value(both), Param(weight)}, {both_meta});
  const int tanh = make.AddNode("aten.tanh.default", {Value(tower)}, {both_meta});
  const int drop = Dropout(make, tanh);
  const int again = make.AddParameter("again.weight", {6, 6});
  const int top = make.AddNode("aten.linear.default", {Value(drop), Param(again)}, {both_meta});
  const auto half = [&](Argument begin, Argument end) {
    return make.AddNode("aten.slice.Tensor", {Value(top), Int(0), std::move(begin), std::move(end)},
                        {Laid({-1, 6}, {0, 1})});
  };
  const int a = half(Int(0), Batch()), b = half(Batch(), Batch(2));
  const int loss = make.AddNode("aten.mse_loss.default", {Value(a), Value(b)}, {Meta({})});
  return {make.Finish(loss),
          {{"left", Random({kMiniBatch * kSteps, 6}, 5)},
           {"right", Random({kMiniBatch * kSteps, 6}, 6)}},
          {both, tower, drop, top}};
}

// Each sample three times, one after the other: [batch * beams].
Model Beams() {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 6});
  const int target = make.AddInput("target", {-1, 2});
  const int first = make.AddLinear("first", In(x), 6, 6);
  const TensorMeta beams = Laid({-3, 6}, {0, 1});
  const int repeated =
      make.AddNode("aten.repeat_interleave.self_int", {Value(first), Int(3), Int(0)}, {beams});
  const int weight = make.AddParameter("beam.weight", {6, 6});
  const int linear = make.AddNode("aten.linear.default", {Value(repeated), Param(weight)}, {beams});
  const int tanh = make.AddNode("aten.tanh.default", {Value(linear)}, {beams});
  const int drop = Dropout(make, tanh);
  const int apart = make.AddNode("aten.reshape.default", {Value(drop), List({Batch(), Int(18)})},
                                 {Laid({-1, 18}, {0, 1})});
  const int out = make.AddLinear("last", Value(apart), 18, 2);
  const int loss = make.AddNode("aten.mse_loss.default", {Value(out), In(target)}, {Meta({})});
  return {
      make.Finish(loss, out),
      {{"x", Random({kMiniBatch * kSteps, 6}, 7)}, {"target", Random({kMiniBatch * kSteps, 2}, 8)}},
      {repeated, linear, drop}};
}

// Micro-batches and replicas before and after the cut.
struct Sides {
  int64_t micro_batch[2];
  int replicas[2];
};
constexpr Sides kSides[] = {
    {{8, 2}, {1, 1}}, {{2, 8}, {1, 1}}, {{8, 8}, {1, 2}}, {{4, 4}, {2, 3}},
    {{8, 4}, {3, 2}}, {{8, 2}, {3, 2}}, {{2, 2}, {1, 1}},
};

class Layouts : public ::testing::TestWithParam<std::pair<const char*, Model (*)()>> {};

TEST_P(Layouts, AreCutAtTheirSamples) {
  const Model model = GetParam().second();
  const HandJob job(model.graph, model.data, kSteps);
  const int last = model.graph.size() - 1;
  const auto whole =
      job.Train(PlanByHand(model.graph, kMiniBatch, {{.last = last, .micro_batch = kMiniBatch}}));
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (int cut : model.cuts) {
    for (const Sides& sides : kSides) {
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << "after node " << cut << ", micro-batches " << sides.micro_batch[0]
                     << " and " << sides.micro_batch[1] << ", replicas " << sides.replicas[0]
                     << " and " << sides.replicas[1]);
        const auto found =
            job.Train(PlanByHand(model.graph, kMiniBatch,
                                 {{cut, sides.micro_batch[0], sides.replicas[0], recompute},
                                  {last, sides.micro_batch[1], sides.replicas[1], recompute}}));
        ASSERT_TRUE(found.ok()) << found.status();
        ExpectSame(*found, *whole);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Layouts,
                         ::testing::Values(std::pair{"TimeMajor", &TimeMajor},
                                           std::pair{"Siamese", &Siamese},
                                           std::pair{"Beams", &Beams}),
                         [](const auto& param_info) {
                           return std::string(param_info.param.first);
                         });

// Scores of each sample against all: softmax over the batch.
Model InBatch() {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 6});
  const int first = make.AddLinear("first", In(x), 6, 6);
  TensorMeta mixed = Meta({-1, 6});
  mixed.mixed = true;
  const int softmax = make.AddNode("aten.softmax.int", {Value(first), Int(0)}, {mixed});
  make.data.nodes.back().batch_dependent = true;
  const int drop = Dropout(make, softmax);
  const int square = make.AddNode("aten.mul.Tensor", {Value(drop), Value(drop)}, {mixed});
  const int loss = make.AddNode("aten.mean.default", {Value(square)}, {Meta({})});
  return {make.Finish(loss), {{"x", Random({kMiniBatch * kSteps, 6}, 5)}}, {softmax, drop}};
}

TEST(MixedValues, CrossWholeOrAreRefused) {
  const Model model = InBatch();
  const HandJob job(model.graph, model.data, kSteps);
  const int last = model.graph.size() - 1;
  const auto whole = job.Train(PlanByHand(model.graph, kMiniBatch, {{last, kMiniBatch}}));
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (int cut : model.cuts) {
    const auto found =
        job.Train(PlanByHand(model.graph, kMiniBatch, {{cut, kMiniBatch}, {last, kMiniBatch}}));
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectSame(*found, *whole);
    for (const Sides& sides : {Sides{{8, 2}, {1, 1}}, Sides{{8, 8}, {1, 2}}}) {
      const auto refused = job.Train(PlanByHand(model.graph, kMiniBatch,
                                                {{cut, sides.micro_batch[0], sides.replicas[0]},
                                                 {last, sides.micro_batch[1], sides.replicas[1]}}));
      EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(refused.status().message()),
                  HasSubstr("does not have its samples side by side and cannot be split between "
                            "stages 0 and 1, which differ in micro-batch size or replicas"));
    }
  }
}

// The samples that fill up a batch would be compared with the others.
TEST(MixedValues, ABatchThatIsNotFullIsRefused) {
  Model model = InBatch();
  model.data["x"] = Random({kMiniBatch * kSteps + 3, 6}, 5);
  const HandJob job(model.graph, model.data, kSteps);
  const int last = model.graph.size() - 1;
  EXPECT_TRUE(job.Train(PlanByHand(model.graph, kMiniBatch, {{last, kMiniBatch}})).ok());
  for (int cut : model.cuts) {
    const auto refused =
        job.Train(PlanByHand(model.graph, kMiniBatch, {{cut, kMiniBatch}, {last, kMiniBatch}}));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("its 27 samples are no multiple of 8"));
  }
}

}  // namespace
}  // namespace stagewright::testing
