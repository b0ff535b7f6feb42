// Buffers that training changes: every pass of a step reads the old value, the step's end brings
// the new one, whatever the plan.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/cost_model.h"
#include "common/lowering/lower.h"
#include "tests/worker_daemon/support/hand_job.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/plans_by_hand.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/training_result.h"
#include "worker_daemon/stage/stage_module.h"

namespace stagewright::testing {
namespace {

constexpr int64_t kMiniBatch = 8;
constexpr int64_t kSteps = 3;

std::map<std::string, at::Tensor> Data(int64_t samples = kMiniBatch * kSteps) {
  return {{"x", Random({samples, 6}, 31)}, {"target", Random({samples, 5}, 32)}};
}

void Update(GraphMaker& make, int parameter, int node, int output = 0) {
  make.data.state_updates.push_back({ParameterId(parameter), {NodeId(node), output}});
}

// A spectrally normalised layer in front, a counter of its forward passes, a layer behind.
struct Spectral {
  Spectral() {
    const int x = make.AddInput("x", {-1, 6});
    const int target = make.AddInput("target", {-1, 5});
    const int weight = make.AddParameter("weight", {5, 6});
    const int u = make.AddParameter("u", {5}, /*trainable=*/false);
    const int v = make.AddParameter("v", {6}, /*trainable=*/false);
    const int count = make.AddParameter("count", {}, /*trainable=*/false);
    make.data.parameters[static_cast<size_t>(count)].dtype = DType::kInt64;
    const int counted =
        make.AddNode("aten.add.Tensor", {Param(count), Int(1)}, {Meta({}, DType::kInt64)});
    const auto unit = [&](int vector, int64_t size) {
      const int norm = make.AddNode("aten.linalg_vector_norm.default", {Value(vector)}, {Meta({})});
      const int divided =
          make.AddNode("aten.div.Tensor", {Value(vector), Value(norm)}, {Meta({size})});
      return make.AddNode("aten.detach.default", {Value(divided)}, {Meta({size})});
    };
    const int turned = make.AddNode("aten.t.default", {Param(weight)}, {Meta({6, 5})});
    const int right = make.AddNode("aten.mv.default", {Value(turned), Param(u)}, {Meta({6})});
    const int new_v = unit(right, 6);
    const int left = make.AddNode("aten.mv.default", {Param(weight), Value(new_v)}, {Meta({5})});
    const int new_u = unit(left, 5);
    const int again = make.AddNode("aten.mv.default", {Param(weight), Value(new_v)}, {Meta({5})});
    const int sigma = make.AddNode("aten.dot.default", {Value(new_u), Value(again)}, {Meta({})});
    const int normal =
        make.AddNode("aten.div.Tensor", {Param(weight), Value(sigma)}, {Meta({5, 6})});
    cut = make.AddNode("aten.linear.default", {In(x), Value(normal)}, {Meta({-1, 5})});
    const int out = make.AddLinear("last", Value(cut), 5, 5);
    const int loss = make.AddNode("aten.mse_loss.default", {Value(out), In(target)}, {Meta({})});
    Update(make, u, new_u);
    // v is written but never read: the next value follows from u.
    Update(make, v, new_v);
    Update(make, count, counted);
    last = loss;
    graph.emplace(make.Finish(loss, out));
  }
  GraphMaker make;
  int cut = 0, last = 0;
  std::optional<Graph> graph;
};

struct Expected {
  TrainingResult training;
  double evaluation = 0;
};

// Eager training, then evaluation with the buffers as they are.
Expected EagerSpectral(const HandJob& job, const std::map<std::string, at::Tensor>& data,
                       int64_t batch) {
  Expected expected;
  auto p = *ReadTensors(job.spec.weights_path);
  const auto forward = [&](const at::Tensor& x, bool training) {
    if (training) {
      const at::NoGradGuard no_grad;
      p["v"] = at::mv(p["weight"].t(), p["u"]);
      p["v"] = p["v"] / p["v"].norm();
      p["u"] = at::mv(p["weight"], p["v"]);
      p["u"] = p["u"] / p["u"].norm();
      p["count"] = p["count"] + 1;
    }
    const at::Tensor sigma = at::dot(p["u"], at::mv(p["weight"], p["v"]));
    return at::linear(at::linear(x, p["weight"] / sigma), p["last.weight"], p["last.bias"]);
  };
  const std::vector<std::string> trained = {"weight", "last.weight", "last.bias"};
  for (int64_t begin = 0; begin < kMiniBatch * kSteps; begin += batch) {
    for (const std::string& name : trained) p[name] = p[name].detach().requires_grad_();
    const at::Tensor loss = at::mse_loss(forward(data.at("x").narrow(0, begin, batch), true),
                                         data.at("target").narrow(0, begin, batch));
    expected.training.losses.push_back(loss.item<double>());
    loss.backward();
    const at::NoGradGuard no_grad;
    for (const std::string& name : trained) p[name] = p[name] - p[name].grad() * 0.1;
  }
  for (auto& [name, tensor] : p) expected.training.parameters[name] = tensor.detach();
  expected.evaluation =
      at::mse_loss(forward(data.at("x"), false), data.at("target")).item<double>();
  return expected;
}

TEST(States, AreThoseOfEagerTrainingUnderAnyPlan) {
  const Spectral model;
  const auto data = Data(kMiniBatch * kSteps + 3);
  const HandJob job(*model.graph, data, kSteps);
  const Expected expected = EagerSpectral(job, data, kMiniBatch);
  const std::vector<Strategy> plans = {
      PlanByHand(*model.graph, kMiniBatch, {{model.last, 8}}),
      PlanByHand(*model.graph, kMiniBatch, {{model.last, 2}}),
      PlanByHand(*model.graph, kMiniBatch, {{model.last, 2, 1, true}}),
      PlanByHand(*model.graph, kMiniBatch, {{model.last, 4, 3}}),
      PlanByHand(*model.graph, kMiniBatch, {{model.cut, 4, 2}, {model.last, 2}}),
      PlanByHand(*model.graph, kMiniBatch, {{model.cut, 2, 2, true}, {model.last, 4, 2, true}}),
      SplitByHand(*model.graph, kMiniBatch, {{model.cut, 2, 1}, {model.last, 2, 2}}),
      SplitByHand(*model.graph, kMiniBatch, {{model.cut, 2, 2, true}, {model.last, 2, 1, true}}),
  };
  for (size_t i = 0; i < plans.size(); ++i) {
    SCOPED_TRACE(i);
    const auto found = job.Train(plans[i]);
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectSame(*found, expected.training);
    EXPECT_NEAR(found->evaluations[0].loss, expected.evaluation, 1e-12);
  }
}

// With one micro-batch in flight: each is a batch of its own, in eager training, too.
TEST(States, OfAnAsynchronousProgramGoOnFromMicroBatchToMicroBatch) {
  const Spectral model;
  const HandJob job(*model.graph, Data(), kSteps);
  const Expected expected = EagerSpectral(job, Data(), 2);
  for (const bool recompute : {false, true}) {
    Strategy strategy = PlanByHand(*model.graph, kMiniBatch, {{model.last, 2, 2, recompute}});
    strategy.asynchronous = true;
    const auto found = job.Train(strategy);
    ASSERT_TRUE(found.ok()) << found.status();
    for (const auto& [name, tensor] : expected.training.parameters)
      EXPECT_LT(RelativeError(found->parameters.at(name).to(at::kDouble), tensor.to(at::kDouble)),
                1e-9)
          << name;
  }
}

// With more in flight, passes backward find what their passes forward have read, and no count is
// lost.
TEST(States, OfMicroBatchesInFlightStayAsTheyWereRead) {
  const Spectral model;
  const HandJob job(*model.graph, Data(), kSteps);
  Strategy strategy =
      PlanByHand(*model.graph, kMiniBatch, {{model.cut, 2, 1}, {model.last, 2, 1, true}});
  strategy.asynchronous = true;
  strategy.stages[0].schedule.in_flight = 4;
  strategy.stages[1].schedule.in_flight = 2;
  const auto found = job.Train(strategy);
  ASSERT_TRUE(found.ok()) << found.status();
  const auto before = ReadTensors(job.spec.weights_path);
  EXPECT_EQ(found->parameters.at("count").item<int64_t>(),
            before->at("count").item<int64_t>() + kSteps * kMiniBatch / 2);
}

// As in eager training that leaves out an optimizer step.
TEST(States, GoOnWhereAnUpdateIsSkipped) {
  const Spectral model;
  auto data = Data();
  data["x"][kMiniBatch + 1][2] = std::nan("");
  HandJob job(*model.graph, data, kSteps);
  job.spec.training.on_non_finite = NonFinite::kSkip;
  const auto costs = MakeAnalyticCostModel(*model.graph);
  auto program = Lower(*model.graph, PlanByHand(*model.graph, kMiniBatch, {{model.last, 4}}),
                       *costs, {.training = true, .gradient_norm = true});
  ASSERT_TRUE(program.ok()) << program.status();
  job.spec.program = std::make_shared<const Program>(*std::move(program));
  const auto found = TrainLocally(job.spec);
  ASSERT_TRUE(found.ok()) << found.status();
  const auto before = ReadTensors(job.spec.weights_path);
  EXPECT_EQ(found->parameters.at("count").item<int64_t>(),
            before->at("count").item<int64_t>() + kSteps);
  EXPECT_TRUE(found->parameters.at("weight").isfinite().all().item<bool>());
}

// mean = 0.9 mean + 0.1 * that of the batch, which later nodes read.
struct Average {
  Average() {
    const int x = make.AddInput("x", {-1, 6});
    const int target = make.AddInput("target", {-1, 5});
    const int mean = make.AddParameter("mean", {6}, /*trainable=*/false);
    const int first = make.AddLinear("first", In(x), 6, 6);
    cut = make.AddNode("aten.tanh.default", {Value(first)}, {Meta({-1, 6})});
    TensorMeta mixed = Meta({6});
    mixed.mixed = true;
    const int of_batch = make.AddNode("aten.mean.dim", {Value(cut), List({Int(0)})}, {mixed});
    make.data.nodes.back().batch_dependent = true;
    const int old = make.AddNode("aten.mul.Tensor", {Param(mean), Real(0.9)}, {Meta({6})});
    const int share = make.AddNode("aten.mul.Tensor", {Value(of_batch), Real(0.1)}, {mixed});
    const int sum = make.AddNode("aten.add.Tensor", {Value(old), Value(share)}, {mixed});
    const int next = make.AddNode("aten.detach.default", {Value(sum)}, {mixed});
    centred = make.AddNode("aten.sub.Tensor", {Value(cut), Value(next)}, {Meta({-1, 6})});
    const int out = make.AddLinear("last", Value(centred), 6, 5);
    last = make.AddNode("aten.mse_loss.default", {Value(out), In(target)}, {Meta({})});
    Update(make, mean, next);
    graph.emplace(make.Finish(last, out));
  }
  GraphMaker make;
  int cut = 0, centred = 0, last = 0;
  std::optional<Graph> graph;
};

TEST(States, AnAverageOverBatchesIsThatOfEagerTraining) {
  const Average model;
  const auto data = Data();
  const HandJob job(*model.graph, data, kSteps);
  auto p = *ReadTensors(job.spec.weights_path);
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::vector<std::string> trained = {"first.weight", "first.bias", "last.weight",
                                              "last.bias"};
    for (const std::string& name : trained) p[name] = p[name].detach().requires_grad_();
    const at::Tensor hidden = at::tanh(at::linear(
        data.at("x").narrow(0, step * kMiniBatch, kMiniBatch), p["first.weight"], p["first.bias"]));
    p["mean"] = (p["mean"] * 0.9 + hidden.mean(0) * 0.1).detach();
    const at::Tensor loss =
        at::mse_loss(at::linear(hidden - p["mean"], p["last.weight"], p["last.bias"]),
                     data.at("target").narrow(0, step * kMiniBatch, kMiniBatch));
    losses.push_back(loss.item<double>());
    loss.backward();
    const at::NoGradGuard no_grad;
    for (const std::string& name : trained) p[name] = p[name] - p[name].grad() * 0.1;
  }
  TrainingResult expected;
  expected.losses = losses;
  for (auto& [name, tensor] : p) expected.parameters[name] = tensor.detach();
  for (const bool recompute : {false, true}) {
    for (const Strategy& plan :
         {PlanByHand(*model.graph, kMiniBatch, {{model.last, 8, 1, recompute}}),
          PlanByHand(*model.graph, kMiniBatch,
                     {{model.cut, 2, 2, recompute},
                      {model.centred, 8, 1, recompute},
                      {model.last, 4, 3, recompute}})}) {
      const auto found = job.Train(plan);
      ASSERT_TRUE(found.ok()) << found.status();
      ExpectSame(*found, expected);
      // In evaluation the average is taken as it is, and stays.
      const at::Tensor& mean = found->parameters.at("mean");
      const at::Tensor hidden =
          at::tanh(at::linear(data.at("x"), p["first.weight"], p["first.bias"]));
      const double loss = at::mse_loss(at::linear(hidden - mean, p["last.weight"], p["last.bias"]),
                                       data.at("target"))
                              .item<double>();
      EXPECT_NEAR(found->evaluations[0].loss, loss, 1e-12);
    }
  }
}

// Statistics of a normalisation follow the passes forward, not those that repeat them.
TEST(States, RunningStatisticsChangeOncePerForwardPass) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 6});
  const int target = make.AddInput("target", {-1, 6});
  const int weight = make.AddParameter("weight", {6}), bias = make.AddParameter("bias", {6});
  const int mean = make.AddParameter("running_mean", {6}, false);
  const int variance = make.AddParameter("running_var", {6}, false);
  const int norm = make.AddNode("aten.batch_norm.default",
                                {In(x), Param(weight), Param(bias), Param(mean), Param(variance),
                                 Bool(true), Real(0.1), Real(1e-5), Bool(false)},
                                {Meta({-1, 6})});
  make.data.nodes.back().batch_dependent = true;
  const int last = make.AddNode("aten.mse_loss.default", {Value(norm), In(target)}, {Meta({})});
  const Graph graph = make.Finish(last, norm);
  auto data = Data();
  data["target"] = Random({kMiniBatch * kSteps, 6}, 33);
  const HandJob job(graph, data, kSteps);
  auto weights = *ReadTensors(job.spec.weights_path);
  weights["running_var"] = weights["running_var"].abs();
  WriteTensors(job.spec.weights_path, weights);
  const auto once = job.Train(PlanByHand(graph, kMiniBatch, {{last, 8, 1, false}}));
  ASSERT_TRUE(once.ok()) << once.status();
  const auto before = ReadTensors(job.spec.weights_path);
  EXPECT_GT(RelativeError(once->parameters.at("running_mean"), before->at("running_mean")), 1e-3);
  const auto twice = job.Train(PlanByHand(graph, kMiniBatch, {{last, 8, 1, true}}));
  ASSERT_TRUE(twice.ok()) << twice.status();
  ExpectSame(*twice, *once, 1e-15);
}

}  // namespace
}  // namespace stagewright::testing
