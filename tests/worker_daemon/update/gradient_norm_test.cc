#include "worker_daemon/update/gradient_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/cost/analytic.h"
#include "common/cost/cost_model.h"
#include "common/lowering/lower.h"
#include "common/validation/validate.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/training_result.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/stage/parameter_store.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiniBatch = 8;

// Four linear layers, the first and the last of which share their weight.
Graph Tied() {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 6});
  const int tied = make.AddParameter("tied", {6, 6});
  int last = make.AddNode("aten.linear.default", {In(x), Param(tied)}, {Meta({-1, 6})});
  for (const char* name : {"one", "two"}) {
    const int tanh = make.AddNode("aten.tanh.default", {Value(last)}, {Meta({-1, 6})});
    last = make.AddLinear(name, Value(tanh), 6, 6);
  }
  const int again =
      make.AddNode("aten.linear.default", {Value(last), Param(tied)}, {Meta({-1, 6})});
  const int tanh = make.AddNode("aten.tanh.default", {Value(again)}, {Meta({-1, 6})});
  return make.Finish(make.AddNode("aten.sum.default", {Value(tanh)}, {Meta({})}), -1,
                     LossReduction::kSum);
}

// A parameter store of the graph with reproducible gradients.
ParameterStore WithGradients(const Graph& graph, double scale) {
  std::vector<ParameterId> ids;
  for (size_t i = 0; i < graph.parameters().size(); ++i)
    ids.push_back(ParameterId(static_cast<int64_t>(i)));
  auto store =
      ParameterStore::Load(graph, ids, WriteWeights(graph, "norm_weights.safetensors"), at::kCPU);
  EXPECT_TRUE(store.ok()) << store.status();
  for (ParameterId id : ids) {
    at::Tensor parameter = (*store)[id];
    parameter.mutable_grad() =
        scale * Random(parameter.sizes().vec(), static_cast<uint64_t>(id.value()) + 1);
  }
  return *std::move(store);
}

std::vector<ParameterRange> Whole(const Graph& graph) {
  std::vector<ParameterRange> all;
  for (size_t p = 0; p < graph.parameters().size(); ++p)
    all.push_back({ParameterId(static_cast<int64_t>(p)), 0, graph.parameters()[p].Elements()});
  return all;
}

// clip_grad_norm_ as PyTorch writes it: the norm of the norms, and a factor of at most 1.
double Clip(std::vector<at::Tensor>& gradients, double max_norm) {
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) norms.push_back(at::linalg_vector_norm(gradient));
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms));
  const at::Tensor factor = at::clamp_max(max_norm / (total + 1e-6), 1.0);
  for (at::Tensor& gradient : gradients) gradient = gradient * factor;
  return total.item<double>();
}

TEST(ClipGradientNorm, IsPyTorchsOnOneDevice) {
  const Graph graph = Tied();
  const Reduction alone{{}, {DeviceId(0)}, 8, {StageId(0)}, true};
  for (const double max_norm : {0.25, 1e6}) {
    const ParameterStore store = WithGradients(graph, 1);
    std::vector<at::Tensor> expected;
    for (ParameterId id : store.ids()) expected.push_back(store[id].grad().clone());
    const double norm = Clip(expected, max_norm);
    const auto found =
        ClipGradientNorm(alone, Whole(graph), max_norm, store, nullptr, {}, absl::InfiniteFuture());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_NEAR(*found, norm, 1e-12 * norm);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LE(RelativeError(store[store.ids()[i]].grad(), expected[i]), 1e-12);
  }
}

// Only what counts here of a gradient is looked at; all of it is scaled.
TEST(ClipGradientNorm, CountsRanges) {
  const Graph graph = Tied();
  const Reduction alone{{}, {DeviceId(0)}, 8, {StageId(0)}, true};
  const ParameterStore store = WithGradients(graph, 1);
  std::vector<ParameterRange> owned = Whole(graph);
  double squares = 0;
  for (ParameterRange& range : owned) {
    range.begin = range.end / 3;
    const at::Tensor& gradient = store[range.id].grad();
    if (gradient.defined()) {
      squares +=
          gradient.reshape({-1}).narrow(0, range.begin, range.size()).square().sum().item<double>();
    }
  }
  const auto found = ClipGradientNorm(alone, owned, 0, store, nullptr, {}, absl::InfiniteFuture());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_NEAR(*found, std::sqrt(squares), 1e-12 * *found);
}

// Where a device keeps the gradients of its shares alone, these are counted, scaled and dropped.
TEST(ClipGradientNorm, TakesGradientsOfShares) {
  const Graph graph = Tied();
  const Reduction alone{{}, {DeviceId(0)}, 8, {StageId(0)}, true};
  const ParameterStore store = WithGradients(graph, 1);
  std::vector<ParameterRange> owned = Whole(graph);
  std::vector<at::Tensor> expected;
  for (ParameterRange& range : owned) {
    range.begin = range.end / 3;
    at::Tensor& gradient = store[range.id].mutable_grad();
    at::Tensor& of_share = store.share_gradient(range.id);
    of_share = gradient.reshape({-1}).narrow(0, range.begin, range.size()).clone();
    gradient = at::Tensor();
    expected.push_back(of_share.clone());
  }
  const double norm = Clip(expected, 0.25);
  const auto clip = [&](NonFinite policy, bool finite) {
    return *ClipGradientNorm(alone, owned, 0.25, store, nullptr, {}, absl::InfiniteFuture(), policy,
                             finite);
  };
  EXPECT_NEAR(clip(NonFinite::kStop, true), norm, 1e-12 * norm);
  for (size_t i = 0; i < owned.size(); ++i)
    EXPECT_LE(RelativeError(store.share_gradient(owned[i].id), expected[i]), 1e-12);
  EXPECT_FALSE(std::isfinite(clip(NonFinite::kSkip, false)));
  for (const ParameterRange& range : owned) EXPECT_FALSE(store.share_gradient(range.id).defined());
}

TEST(ClipGradientNorm, RefusesANormThatIsNotFinite) {
  const Graph graph = Tied();
  const ParameterStore store = WithGradients(graph, std::numeric_limits<double>::infinity());
  const Reduction alone{{}, {DeviceId(0)}, 8, {StageId(0)}, true};
  const auto found =
      ClipGradientNorm(alone, Whole(graph), 1, store, nullptr, {}, absl::InfiniteFuture());
  EXPECT_TRUE(absl::IsFailedPrecondition(found.status()));
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("the norm of the gradients is"));
}

TEST(ClipGradientNorm, ANormThatIsNotFiniteMayDropTheGradients) {
  const Graph graph = Tied();
  const Reduction alone{{}, {DeviceId(0)}, 8, {StageId(0)}, true};
  for (const bool finite : {true, false}) {  // Gradients, or another reason.
    SCOPED_TRACE(finite);
    const ParameterStore store =
        WithGradients(graph, finite ? std::numeric_limits<double>::infinity() : 1);
    const auto found = ClipGradientNorm(alone, Whole(graph), 0, store, nullptr, {},
                                        absl::InfiniteFuture(), NonFinite::kSkip, finite);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_FALSE(std::isfinite(*found));
    for (ParameterId id : store.ids()) EXPECT_FALSE(store[id].grad().defined());
  }
  const ParameterStore store = WithGradients(graph, 1);
  ASSERT_TRUE(ClipGradientNorm(alone, Whole(graph), 0, store, nullptr, {}, absl::InfiniteFuture(),
                               NonFinite::kSkip)
                  .ok());
  for (ParameterId id : store.ids()) EXPECT_TRUE(store[id].grad().defined());
}

struct Job {
  DeviceJob spec;
  Job() {
    at::set_num_threads(1);
    spec.graph = std::make_shared<const Graph>(Tied());
    spec.weights_path = WriteWeights(*spec.graph, "clip_weights.safetensors");
    spec.data_path = TempPath("clip_data.safetensors");
    WriteTensors(spec.data_path, {{"x", Random({3 * kMiniBatch, 6}, 5)}});
    spec.training.optimizer.learning_rate = 0.05;
    spec.training.optimizer.kind = Optimizer::kSgdMomentum;
    spec.steps = 5;
    spec.step_timeout = absl::Seconds(20);
  }
  TrainingResult Train(const StrategyShape& shape, double max_norm, uint64_t seed) {
    std::mt19937_64 random(seed);
    const Strategy strategy = ForceStrategy(*spec.graph, shape, random);
    const auto costs = MakeAnalyticCostModel(*spec.graph);
    spec.training.max_gradient_norm = max_norm;
    auto program = Lower(*spec.graph, strategy, *costs,
                         {.training = true, .gradient_norm = NeedsGradientNorm(spec.training)});
    EXPECT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(Validate(*program, {}), absl::OkStatus());
    spec.program = std::make_shared<const Program>(*std::move(program));
    auto result = TrainLocally(spec);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : TrainingResult();
  }
};

// Trains with `plans` plans, of several stages and replicas, and expects `expected`.
void ExpectOfAnyPlan(Job& job, double max_norm, uint64_t plans, const TrainingResult& expected) {
  for (uint64_t seed = 1; seed <= plans; ++seed) {
    SCOPED_TRACE(seed);
    const StrategyShape shape{.stages = 2 + static_cast<int>(seed % 2),
                              .mini_batch = kMiniBatch,
                              .most_replicas = 1 + static_cast<int>(seed % 3),
                              .share_devices = seed % 4 == 0};
    const TrainingResult result = job.Train(shape, max_norm, seed);
    for (const auto& [name, value] : expected.parameters) {
      ASSERT_TRUE(result.parameters.contains(name)) << name;
      EXPECT_LE(RelativeError(result.parameters.at(name), value), 1e-9) << name;
    }
  }
}

// Stages, replicas, shared devices and tied weights: each parameter counts once.
TEST(ClippedTraining, IsTheSameForAnyPlan) {
  Job job;
  const StrategyShape whole{.stages = 1, .mini_batch = kMiniBatch, .micro_batches = 1};
  const TrainingResult expected = job.Train(whole, 0.5, 1);
  const TrainingResult unclipped = job.Train(whole, 0, 1);
  ASSERT_FALSE(expected.parameters.empty());
  // Clipping matters here.
  EXPECT_GT(RelativeError(unclipped.parameters.at("tied"), expected.parameters.at("tied")), 1e-3);
  ExpectOfAnyPlan(job, 0.5, 12, expected);
}

TEST(ClippedTraining, ProgramAndConfigurationAgree) {
  Job job;
  job.Train({.stages = 1, .mini_batch = kMiniBatch, .micro_batches = 1}, 1, 1);
  job.spec.training.max_gradient_norm = 0;
  EXPECT_THAT(std::string(TrainLocally(job.spec).status().message()),
              HasSubstr("it sums a norm of gradients"));
}

// A sample that is not a number, seen in one step of three.
TEST(NonFiniteTraining, EveryPolicyIsTheSameForAnyPlan) {
  Job job;
  at::Tensor data = Random({3 * kMiniBatch, 6}, 5);
  data[kMiniBatch + 3][2] = std::numeric_limits<double>::quiet_NaN();
  WriteTensors(job.spec.data_path, {{"x", data}});
  job.spec.order = SampleOrder::kSequential;
  const StrategyShape whole{.stages = 1, .mini_batch = kMiniBatch, .micro_batches = 1};

  job.spec.training.on_non_finite = NonFinite::kContinue;
  const TrainingResult poisoned = job.Train(whole, 0, 1);
  EXPECT_TRUE(poisoned.parameters.at("tied").isnan().any().item<bool>());

  // Steps 0, 2, 3 and 5 are those of training on the data without the bad batch.
  job.spec.training.on_non_finite = NonFinite::kSkip;
  job.spec.steps = 6;
  const TrainingResult expected = job.Train(whole, 0, 1);
  Job clean;
  WriteTensors(clean.spec.data_path,
               {{"x", at::cat({data.narrow(0, 0, kMiniBatch),
                               data.narrow(0, 2 * kMiniBatch, kMiniBatch)})}});
  clean.spec.order = SampleOrder::kSequential;
  clean.spec.steps = 4;
  const TrainingResult without = clean.Train(whole, 0, 1);
  WriteTensors(job.spec.data_path, {{"x", data}});  // Both jobs use one file.
  for (const auto& [name, value] : without.parameters)
    EXPECT_LE(RelativeError(expected.parameters.at(name), value), 1e-12) << name;
  ExpectOfAnyPlan(job, 0, 8, expected);

  job.spec.training.on_non_finite = NonFinite::kStop;
  job.spec.training.max_gradient_norm = 1;  // The program sums a norm.
  EXPECT_THAT(std::string(TrainLocally(job.spec).status().message()), HasSubstr("the loss is nan"));
}

}  // namespace
}  // namespace stagewright::testing
