// Losses that divide by a total of the batch are those of the whole mini-batch, however it is cut.
#include "worker_daemon/effects/batch_totals.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/worker_daemon/support/hand_job.h"
#include "tests/worker_daemon/support/plans/plans_by_hand.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/training_result.h"
#include "worker_daemon/stage/parameter_store.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiniBatch = 8;
constexpr int64_t kSteps = 3;
constexpr int64_t kSamples = kMiniBatch * kSteps + 3;  // The last batch of an evaluation has three.
constexpr int64_t kTokens = 5;
constexpr int64_t kClasses = 4;
constexpr int64_t kIgnored = -100;

Argument Wide() { return {DType::kFloat64}; }
at::Tensor ClassWeights() { return at::tensor({0.5, 2.0, 1.0, 0.1}, at::kDouble); }

// Places of the nodes after which a plan may cut.
struct Cuts {
  int hidden = 0, logits = 0, last = 0;
};

// The total that the loss divides by: targets that count, or the sum of their classes' weights.
void AddTotal(GraphMaker& make, int target, std::optional<int> weights) {
  std::vector<Node>& nodes = make.data.totals.nodes;
  const auto add = [&](std::string aten, std::vector<Argument> args, TensorMeta meta,
                       std::vector<NamedArgument> kwargs = {}) {
    Node node;
    node.name = "total" + std::to_string(nodes.size());
    node.target = std::move(aten);
    node.args = std::move(args);
    node.kwargs = std::move(kwargs);
    node.outputs = {std::move(meta)};
    nodes.push_back(std::move(node));
    return static_cast<int>(nodes.size()) - 1;
  };
  int counted =
      add("aten.ne.Scalar", {In(target), Int(kIgnored)}, Meta({-1, kTokens}, DType::kBool));
  if (weights.has_value()) {
    const int known =
        add("aten.clamp.default", {In(target), Int(0)}, Meta({-1, kTokens}, DType::kInt64));
    const int of_target =
        add("aten.take.default", {Param(*weights), Value(known)}, Meta({-1, kTokens}));
    counted = add("aten.mul.Tensor", {Value(of_target), Value(counted)}, Meta({-1, kTokens}));
  }
  const int sum = add("aten.sum.default", {Value(counted)}, Meta({}), {{"dtype", Wide()}});
  make.data.totals.values.push_back({NodeId(sum), 0});
}

// Cross entropy over tokens as a mean: a sum divided by a total.
Graph Tagger(bool weighted, Cuts& cuts) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, kTokens, 6});
  const int target = make.AddInput("target", {-1, kTokens}, DType::kInt64);
  make.data.inputs[static_cast<size_t>(target)].role = InputRole::kTarget;
  const int inner = make.AddParameter("inner", {6, 6});
  const int outer = make.AddParameter("outer", {kClasses, 6});
  std::optional<int> weights;
  if (weighted) {
    weights = make.AddParameter("class_weights", {kClasses}, /*trainable=*/false);
    std::string data(kClasses * sizeof(double), '\0');
    std::memcpy(data.data(), ClassWeights().data_ptr(), data.size());
    make.data.parameters.back().data = data;
  }
  AddTotal(make, target, weights);
  const int hidden =
      make.AddNode("aten.linear.default", {In(x), Param(inner)}, {Meta({-1, kTokens, 6})});
  const int tanh = make.AddNode("aten.tanh.default", {Value(hidden)}, {Meta({-1, kTokens, 6})});
  const int logits = make.AddNode("aten.linear.default", {Value(tanh), Param(outer)},
                                  {Meta({-1, kTokens, kClasses})});
  const int turned = make.AddNode("aten.transpose.int", {Value(logits), Int(1), Int(2)},
                                  {Meta({-1, kClasses, kTokens})});
  const int sum = make.AddNode(
      "aten.cross_entropy_loss.default",
      {Value(turned), In(target), weighted ? Param(*weights) : Nothing(), Int(2), Int(kIgnored)},
      {Meta({})});
  const int loss = make.AddNode("aten.div.Tensor", {Value(sum), Argument{TotalId(0)}}, {Meta({})});
  cuts = {tanh, logits, loss};
  return make.Finish(loss, -1, LossReduction::kSum);
}

// The second sample and all of micro-batch [2, 4) count for nothing; most others partly.
std::map<std::string, at::Tensor> Data() {
  at::Tensor target = at::arange(kSamples * kTokens, at::kLong).remainder(kClasses);
  target.slice(0, 0, kSamples * kTokens, 3).fill_(kIgnored);
  target = target.reshape({kSamples, kTokens});
  target.slice(0, 1, 4).fill_(kIgnored);
  return {{"x", Random({kSamples, kTokens, 6}, 21)}, {"target", target}};
}

at::Tensor MeanLoss(const at::Tensor& x, const at::Tensor& target, const at::Tensor& inner,
                    const at::Tensor& outer, bool weighted) {
  const at::Tensor logits = at::linear(at::tanh(at::linear(x, inner)), outer);
  return at::cross_entropy_loss(logits.transpose(1, 2), target,
                                weighted ? ClassWeights() : at::Tensor(), /*reduction=*/1,
                                kIgnored);
}

// Plain SGD on batches of `size` samples; losses per batch.
TrainingResult Reference(const HandJob& job, bool weighted, int64_t size) {
  TrainingResult result;
  const auto weights = ReadTensors(job.spec.weights_path);
  EXPECT_TRUE(weights.ok());
  at::Tensor inner = weights->at("inner").requires_grad_();
  at::Tensor outer = weights->at("outer").requires_grad_();
  const auto data = Data();
  for (int64_t begin = 0; begin < kMiniBatch * kSteps; begin += size) {
    const at::Tensor loss =
        MeanLoss(data.at("x").narrow(0, begin, size), data.at("target").narrow(0, begin, size),
                 inner, outer, weighted);
    result.losses.push_back(loss.item<double>());
    if (std::isnan(result.losses.back())) continue;
    loss.backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor* parameter : {&inner, &outer}) {
      parameter->sub_(parameter->grad(), job.spec.training.optimizer.learning_rate);
      parameter->mutable_grad() = at::Tensor();
    }
  }
  result.parameters = {{"inner", inner.detach()}, {"outer", outer.detach()}};
  return result;
}

class Totals : public ::testing::TestWithParam<bool> {
 protected:
  Totals() : graph_(Tagger(GetParam(), cuts_)), job_(graph_, Data(), kSteps) {}

  void ExpectReference(const Strategy& strategy) {
    const TrainingResult expected = Reference(job_, GetParam(), kMiniBatch);
    const auto found = job_.Train(strategy);
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectSame(*found, expected, 1e-12);
    EXPECT_FALSE(found->parameters.contains("class_weights"));
    // The loss of the whole evaluation data, whatever its batches.
    const auto data = Data();
    const double loss = MeanLoss(data.at("x"), data.at("target"), found->parameters.at("inner"),
                                 found->parameters.at("outer"), GetParam())
                            .item<double>();
    ASSERT_EQ(found->evaluations.size(), 1u);
    EXPECT_NEAR(found->evaluations[0].loss, loss, 1e-12);
    EXPECT_EQ(found->evaluations[0].loss_samples, kSamples);
  }

  Cuts cuts_;
  const Graph graph_;
  const HandJob job_;
};

TEST_P(Totals, OneStage) {
  for (int64_t micro_batch : {8, 4, 2, 1}) {
    SCOPED_TRACE(micro_batch);
    for (const bool recompute : {false, true}) {
      ExpectReference(PlanByHand(graph_, kMiniBatch, {{cuts_.last, micro_batch, 1, recompute}}));
    }
  }
}

TEST_P(Totals, StagesAndReplicas) {
  for (int cut : {cuts_.hidden, cuts_.logits}) {
    for (const bool recompute : {false, true}) {
      ExpectReference(
          PlanByHand(graph_, kMiniBatch, {{cut, 2, 1, recompute}, {cuts_.last, 4, 3, recompute}}));
      ExpectReference(
          PlanByHand(graph_, kMiniBatch, {{cut, 8, 3, recompute}, {cuts_.last, 8, 2, recompute}}));
    }
  }
}

TEST_P(Totals, SplitBackwardPasses) {
  ExpectReference(
      SplitByHand(graph_, kMiniBatch, {{cuts_.hidden, 2, 1, false}, {cuts_.last, 2, 2, false}}));
  ExpectReference(
      SplitByHand(graph_, kMiniBatch, {{cuts_.hidden, 2, 1, true}, {cuts_.last, 2, 1, true}}));
}

// Every micro-batch is a batch of its own.
TEST_P(Totals, AnAsynchronousProgramDividesByThoseOfTheMicroBatch) {
  constexpr int64_t kMicroBatch = 4;
  const TrainingResult expected = Reference(job_, GetParam(), kMicroBatch);
  for (int replicas : {1, 2, 3}) {
    Strategy strategy =
        PlanByHand(graph_, kMiniBatch, {{cuts_.last, kMicroBatch, replicas, false}});
    strategy.asynchronous = true;
    const auto found = job_.Train(strategy);
    ASSERT_TRUE(found.ok()) << found.status();
    for (const auto& [name, tensor] : expected.parameters)
      EXPECT_LT(RelativeError(found->parameters.at(name), tensor), 1e-12) << name;
    for (size_t step = 0; step < found->losses.size(); ++step) {
      const double mean = (expected.losses[2 * step] + expected.losses[2 * step + 1]) / 2;
      EXPECT_NEAR(found->losses[step], mean, 1e-12) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(CountsAndClassWeights, Totals, ::testing::Bool());

TEST(TotalsPlan, HasWhatTheTotalsTakeAndNoMore) {
  Cuts cuts;
  Graph graph = Tagger(true, cuts);
  GraphData data = graph.data();
  Node unused = data.totals.nodes[0];
  unused.name = "unused";
  unused.args[0] = In(0);
  unused.outputs[0].shape.push_back({0, 6});
  data.totals.nodes.push_back(unused);
  graph = *Graph::Create(data);
  const TotalsPlan plan = PlanTotals(graph, {TotalId(0), TotalId(0)});
  EXPECT_THAT(plan.values, ::testing::ElementsAre(TotalId(0)));
  EXPECT_THAT(plan.nodes, ::testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(plan.inputs, ::testing::ElementsAre(InputId(1)));
  EXPECT_THAT(plan.parameters, ::testing::ElementsAre(ParameterId(2)));
}

TEST(TotalsModule, NamesTheNodeThatFails) {
  Cuts cuts;
  const Graph graph = Tagger(false, cuts);
  GraphData data = graph.data();
  data.totals.nodes[1].target = "aten.no_such.default";
  const Graph bad = *Graph::Create(data);
  const TotalsPlan plan = PlanTotals(bad, {TotalId(0)});
  const HandJob job(graph, Data(), 1);
  const auto store = ParameterStore::Load(graph, {}, job.spec.weights_path, at::kCPU);
  ASSERT_TRUE(store.ok());
  const auto module = TotalsModule::Create(bad, plan, *store, at::kCPU);
  EXPECT_EQ(module.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(module.status().message()),
              HasSubstr("totals: node \"total1\" (aten.no_such.default)"));
}

}  // namespace
}  // namespace stagewright::testing
