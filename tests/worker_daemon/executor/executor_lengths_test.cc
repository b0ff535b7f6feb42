// Samples of several lengths in one job: every step runs the program of its samples, over one set
// of parameters, and is that of eager mode whatever the plan.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/plans/plans_by_hand.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/training_result.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/executor/device_runner.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiniBatch = 4;

// Two layers on every step of x: [samples, length, 3], their mean over time, and a third.
Graph OfLength(int64_t length) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, length, 3});
  const int target = make.AddInput("target", {-1, 2});
  make.data.inputs[target].role = InputRole::kTarget;
  const auto layer = [&](const char* name, Argument in, int64_t from, int64_t to) {
    const int weight = make.AddParameter(absl::StrCat(name, ".weight"), {to, from});
    const int linear = make.AddNode("aten.linear.default", {std::move(in), Param(weight)},
                                    {Meta({-1, length, to})});
    return make.AddNode("aten.tanh.default", {Value(linear)}, {Meta({-1, length, to})});
  };
  const int first = layer("first", In(x), 3, 6);
  const int second = layer("second", Value(first), 6, 4);
  const int mean = make.AddNode("aten.mean.dim", {Value(second), List({Int(1)})}, {Meta({-1, 4})});
  const int out = make.AddLinear("last", Value(mean), 4, 2);
  const int loss = make.AddNode("aten.mse_loss.default", {Value(out), In(target)}, {Meta({})});
  return make.Finish(loss);
}

// Samples of each length in files of their own: 10 of length 5, 7 of length 2, 6 of length 3.
const std::vector<std::pair<int64_t, int64_t>> kFiles = {{5, 6}, {2, 7}, {3, 6}, {5, 4}};

struct Job {
  DeviceJob spec;
  std::vector<at::Tensor> x, target;  // By sample.

  explicit Job(const std::vector<HandStage>& stages) {
    const std::string stem = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    const std::string data = TempPath(stem + "_data");
    std::filesystem::create_directories(data);
    for (size_t i = 0; i < kFiles.size(); ++i) {
      const auto [length, samples] = kFiles[i];
      const at::Tensor xs = Random({samples, length, 3}, 50 + i);
      const at::Tensor targets = Random({samples, 2}, 70 + i);
      WriteTensors(absl::StrCat(data, "/part-", i, ".safetensors"),
                   {{"x", xs}, {"target", targets}});
      for (int64_t s = 0; s < samples; ++s) {
        x.push_back(xs[s]);
        target.push_back(targets[s]);
      }
    }
    for (int64_t length : {5, 3, 2}) {
      auto graph = std::make_shared<const Graph>(OfLength(length));
      const auto programs = LowerBoth(*graph, PlanByHand(*graph, kMiniBatch, stages));
      EXPECT_TRUE(programs.ok()) << programs.status();
      if (spec.graph == nullptr) {
        spec.graph = graph;
        spec.program = programs->training;
        spec.evaluation = programs->evaluation;
      } else {
        spec.lengths.push_back({graph, programs->training, programs->evaluation});
      }
    }
    spec.weights_path = WriteWeights(*spec.graph, stem + "_weights.safetensors");
    spec.data_path = spec.evaluation_path = data;
    spec.training.optimizer.learning_rate = 0.1;
    spec.steps = 13;
    spec.seed = 9;
    spec.step_timeout = absl::Seconds(20);
  }
};

at::Tensor Eager(const std::map<std::string, at::Tensor>& weights, const at::Tensor& x,
                 const at::Tensor& target) {
  const at::Tensor first = at::tanh(at::linear(x, weights.at("first.weight")));
  const at::Tensor second = at::tanh(at::linear(first, weights.at("second.weight")));
  return at::mse_loss(
      at::linear(second.mean(1), weights.at("last.weight"), weights.at("last.bias")), target);
}

// The same mini-batches, one after the other.
TrainingResult Expected(const Job& job) {
  TrainingResult expected;
  expected.parameters = *ReadTensors(job.spec.weights_path);
  for (auto& [name, tensor] : expected.parameters) tensor.set_requires_grad(true);
  std::vector<const Graph*> graphs;
  for (const LengthSpec& length : AllLengths(job.spec)) graphs.push_back(length.graph.get());
  auto sampler = Sampler::Create(*SampleLengths::Read(graphs, job.spec.data_path), kMiniBatch,
                                 job.spec.order, job.spec.seed);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  const auto gather = [](const std::vector<at::Tensor>& from, const std::vector<int64_t>& at) {
    std::vector<at::Tensor> rows;
    for (int64_t index : at) rows.push_back(from[static_cast<size_t>(index)]);
    return at::stack(rows);
  };
  for (int64_t step = 0; step < job.spec.steps; ++step) {
    const std::vector<int64_t> batch = sampler->MiniBatch(step);
    const at::Tensor loss =
        Eager(expected.parameters, gather(job.x, batch), gather(job.target, batch));
    expected.losses.push_back(loss.item<double>());
    loss.backward();
    const at::NoGradGuard no_grad;
    for (auto& [name, tensor] : expected.parameters) {
      tensor.sub_(tensor.grad(), 0.1);
      tensor.mutable_grad().reset();
    }
  }
  double sum = 0;
  for (size_t s = 0; s < job.x.size(); ++s) {
    sum += Eager(expected.parameters, job.x[s].unsqueeze(0), job.target[s].unsqueeze(0))
               .item<double>();
  }
  for (auto& [name, tensor] : expected.parameters) tensor = tensor.detach();
  expected.evaluations.push_back(
      {sum / static_cast<double>(job.x.size()), static_cast<int64_t>(job.x.size()), 0, 0});
  return expected;
}

void ExpectEager(const Job& job) {
  const auto trained = TrainLocally(job.spec);
  ASSERT_TRUE(trained.ok()) << trained.status();
  const TrainingResult expected = Expected(job);
  ExpectSame(*trained, expected);
  ASSERT_EQ(trained->evaluations.size(), 1u);
  EXPECT_NEAR(trained->evaluations[0].loss, expected.evaluations[0].loss, 1e-9);
  EXPECT_EQ(trained->evaluations[0].loss_samples, expected.evaluations[0].loss_samples);
}

constexpr int kFirst = 1, kSecond = 3, kLast = 6;  // The last nodes of stages.

TEST(EngineLengths, OneDeviceTrainsAsEagerModeDoes) {
  ExpectEager(Job({{.last = kLast, .micro_batch = 2}}));
}

TEST(EngineLengths, ThreeStagesTrainAsEagerModeDoes) {
  ExpectEager(Job({{.last = kFirst, .micro_batch = 1},
                   {.last = kSecond, .micro_batch = 2, .recompute = true},
                   {.last = kLast, .micro_batch = 4}}));
}

TEST(EngineLengths, ReplicasTrainAsEagerModeDoes) {
  ExpectEager(
      Job({{.last = kSecond, .micro_batch = 4, .replicas = 2}, {.last = kLast, .micro_batch = 2}}));
}

TEST(EngineLengths, RefusesProgramsThatAreNotOfTheSameStages) {
  Job job({{.last = kSecond, .micro_batch = 2}, {.last = kLast, .micro_batch = 2}});
  const Job other({{.last = kFirst, .micro_batch = 2}, {.last = kLast, .micro_batch = 2}});
  job.spec.lengths[1] = other.spec.lengths[1];
  EXPECT_THAT(std::string(TrainLocally(job.spec).status().message()),
              HasSubstr("lengths[1]: its programs are not those of the job for other samples"));
  job.spec.lengths[1].program = nullptr;
  EXPECT_THAT(std::string(TrainLocally(job.spec).status().message()),
              HasSubstr("lengths[1]: its graph or a program is missing"));
}

}  // namespace
}  // namespace stagewright::testing
