// Whole jobs in one process: what they report, and how they fail.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/executor/device_runner.h"
#include "worker_daemon/transport/local/local_transport.h"

namespace stagewright::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiniBatch = 8;
constexpr int64_t kSamples = 27;  // Three mini-batches and a rest of three.

// A classifier: linear, tanh, dropout, linear, cross entropy.
GraphMaker Classifier(LossReduction reduction = LossReduction::kMean) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 6});
  const int target = make.AddInput("target", {-1}, DType::kInt64);
  make.data.inputs[target].role = InputRole::kTarget;
  const int first = make.AddLinear("first", In(x), 6, 10);
  const int tanh = make.AddNode("aten.tanh.default", {Value(first)}, {Meta({-1, 10})});
  const int drop =
      make.AddNode("aten.dropout.default", {Value(tanh), Real(0.5), Bool(true)}, {Meta({-1, 10})});
  const int second = make.AddLinear("second", Value(drop), 10, 4);
  const int mode = reduction == LossReduction::kMean ? 1 : 2;
  const int loss = make.AddNode("aten.cross_entropy_loss.default",
                                {Value(second), In(target), Nothing(), Int(mode)}, {Meta({})});
  make.data.loss = ValueRef{NodeId(loss), 0};
  make.data.prediction = ValueRef{NodeId(second), 0};
  make.data.loss_reduction = reduction;
  return make;
}

std::map<std::string, at::Tensor> Data() {
  return {{"x", Random({kSamples, 6}, 21)},
          {"target", at::arange(kSamples, at::kLong).remainder(4)}};
}

// A job on `stages` stages with `micro_batches` micro-batches; graph, weights and data in files.
struct Job {
  DeviceJob spec;
  explicit Job(GraphMaker make, StrategyShape shape = {.stages = 3, .micro_batches = 4}) {
    at::set_num_threads(1);
    auto graph = Graph::Create(std::move(make.data));
    EXPECT_TRUE(graph.ok()) << graph.status();
    spec.graph = std::make_shared<const Graph>(*std::move(graph));
    shape.mini_batch = kMiniBatch;
    std::mt19937_64 random(3);
    const auto programs = LowerBoth(*spec.graph, ForceStrategy(*spec.graph, shape, random));
    EXPECT_TRUE(programs.ok()) << programs.status();
    spec.program = programs->training;
    spec.evaluation = programs->evaluation;
    const std::string stem = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    spec.weights_path = WriteWeights(*spec.graph, stem + "_weights.safetensors");
    spec.data_path = TempPath(stem + "_data.safetensors");
    spec.evaluation_path = spec.data_path;
    WriteTensors(spec.data_path, Data());
    spec.training.optimizer.learning_rate = 0.1;
    spec.steps = 4;
    spec.step_timeout = absl::Seconds(20);
  }
};

// Loss and correct predictions on the whole data set, computed by LibTorch from the parameters.
std::pair<double, int64_t> Evaluate(const std::map<std::string, at::Tensor>& p, int64_t reduction) {
  const auto data = Data();
  const at::Tensor hidden =
      at::tanh(at::linear(data.at("x"), p.at("first.weight"), p.at("first.bias")));
  const at::Tensor out = at::linear(hidden, p.at("second.weight"), p.at("second.bias"));
  const at::Tensor loss = at::cross_entropy_loss(out, data.at("target"), {}, reduction);
  return {loss.item<double>(), out.argmax(1).eq(data.at("target")).sum().item<int64_t>()};
}

class Evaluation : public ::testing::TestWithParam<std::tuple<LossReduction, StrategyShape>> {};

TEST_P(Evaluation, CountsEverySampleOnceWithoutDropout) {
  const auto [reduction, shape] = GetParam();
  Job job(Classifier(reduction), shape);
  const auto result = TrainLocally(job.spec);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->evaluations.size(), 1u);
  const EvaluationReport& last = result->evaluations[0];
  const auto [loss, correct] =
      Evaluate(result->parameters, reduction == LossReduction::kMean ? 1 : 2);
  EXPECT_NEAR(last.loss, loss, 1e-12 * std::abs(loss));
  EXPECT_EQ(last.loss_samples, kSamples);
  EXPECT_EQ(last.correct, correct);
  EXPECT_EQ(last.predicted, kSamples);
  // Training reports, too.
  EXPECT_EQ(result->predicted[0], kMiniBatch);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Evaluation,
    ::testing::Combine(::testing::Values(LossReduction::kMean, LossReduction::kSum),
                       ::testing::Values(StrategyShape{.stages = 1, .micro_batches = 1},
                                         StrategyShape{.stages = 4, .micro_batches = 4},
                                         StrategyShape{.stages = 5, .most_replicas = 3},
                                         StrategyShape{.stages = 5, .share_devices = true})));

TEST(Training, ShufflesEachEpochTheSameForAllDevices) {
  Job job(Classifier());
  job.spec.order = SampleOrder::kShuffled;
  const auto once = TrainLocally(job.spec), again = TrainLocally(job.spec);
  ASSERT_TRUE(once.ok() && again.ok()) << once.status() << again.status();
  EXPECT_EQ(once->losses, again->losses);
  job.spec.seed = 1;
  const auto other = TrainLocally(job.spec);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(once->losses, other->losses);
}

TEST(Training, StopsBeforeALossThatIsNotANumberChangesParameters) {
  Job job(Classifier());
  auto data = Data();
  data["x"][kMiniBatch + 5][2] = std::nan("");
  WriteTensors(job.spec.data_path, data);
  job.spec.order = SampleOrder::kSequential;
  const auto result = TrainLocally(job.spec);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("step 1"), HasSubstr("the loss is nan"), HasSubstr("device"),
                    HasSubstr(" on samples 4 to 5 (12, 13 of the data)")));
}

TEST(Training, ATargetThatIsNoClassIsNamedWithFileAndSample) {
  Job job(Classifier());
  auto data = Data();
  data["target"][kMiniBatch + 5] = 4;
  WriteTensors(job.spec.data_path, data);
  job.spec.order = SampleOrder::kSequential;
  const auto result = TrainLocally(job.spec);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(
      std::string(result.status().message()),
      HasSubstr(job.spec.data_path + ": tensor \"target\": sample 13 holds 4, the loss \""));
}

TEST(Training, AHangIsDetectedAndNamed) {
  Job job(Classifier());
  ASSERT_GT(job.spec.program->devices.size(), 1u);
  job.spec.step_timeout = absl::Seconds(4);  // Other steps take that long on no machine.
  const DeviceId slow = job.spec.program->devices.front().device;
  setenv("UCX_POSIX_DIR", "/proc", 1);  // It has no room for messages.
  const absl::Time begin = absl::Now();
  const auto result = TrainLocally(job.spec, [&](DeviceJob& own) {
    if (own.device != slow) return;
    // The first device dozes after its second step.
    own.on_step = [](const StepReport& report) {
      if (report.step == 1) absl::SleepFor(absl::Seconds(8));
    };
  });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded) << result.status();
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("step 2 did not finish in time"),
                    HasSubstr("waiting for receiving activations of samples "),
                    HasSubstr("device "), HasSubstr("may be lost: /proc is full")));
  unsetenv("UCX_POSIX_DIR");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(60));
}

TEST(Training, AbortFromOutsideEndsAStepThatWaits) {
  Job job(Classifier());
  // Only one of the devices runs: it waits for the others until it is told to stop.
  job.spec.device = job.spec.program->devices.back().device;
  auto transport = LocalTransport::Create({"abort", 1, job.spec.device.value()});
  ASSERT_TRUE(transport.ok());
  std::vector<std::unique_ptr<LocalTransport>> others;
  std::vector<Transport::Peer> peers;
  for (int peer : PeersOf(job.spec)) {
    auto other = LocalTransport::Create({"abort", 1, peer});
    ASSERT_TRUE(other.ok());
    peers.push_back({peer, (*other)->Address()});
    others.push_back(*std::move(other));
  }
  ASSERT_TRUE((*transport)->Connect(peers, absl::Now() + absl::Seconds(30)).ok());
  const auto runner = DeviceRunner::Create(job.spec, transport->get());
  ASSERT_TRUE(runner.ok()) << runner.status();
  absl::Status status;
  std::thread thread([&] { status = (*runner)->Run(); });
  absl::SleepFor(absl::Milliseconds(50));
  (*runner)->Abort(absl::CancelledError("the user has had enough"));
  thread.join();
  EXPECT_EQ(status, absl::CancelledError("the user has had enough"));
}

TEST(Training, APeerThatDiesIsNamed) {
  Job job(Classifier());
  job.spec.device = job.spec.program->devices.back().device;
  auto transport = LocalTransport::Create({"death", 1, job.spec.device.value()});
  ASSERT_TRUE(transport.ok());
  std::vector<std::unique_ptr<LocalTransport>> others;
  std::vector<Transport::Peer> peers;
  for (int peer : PeersOf(job.spec)) {
    others.push_back(*LocalTransport::Create({"death", 1, peer}));
    peers.push_back({peer, others.back()->Address()});
  }
  ASSERT_TRUE((*transport)->Connect(peers, absl::Now() + absl::Seconds(30)).ok());
  const auto runner = DeviceRunner::Create(job.spec, transport->get());
  ASSERT_TRUE(runner.ok());
  std::thread thread([&] {
    absl::SleepFor(absl::Milliseconds(50));
    others.clear();
  });
  const absl::Status status = (*runner)->Run();
  thread.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 0"));
}

TEST(Training, WhatCannotRunIsRefusedBeforeAnythingStarts) {
  GraphMaker unknown = Classifier();
  unknown.data.nodes[1].target = "aten.no_such.default";
  EXPECT_EQ(TrainLocally(Job(unknown).spec).status().code(), absl::StatusCode::kNotFound);

  Job job(Classifier());
  DeviceJob spec = job.spec;
  spec.torch_device = "abacus";
  EXPECT_THAT(std::string(TrainLocally(spec).status().message()),
              HasSubstr("torch_device \"abacus\""));
  spec = job.spec;
  spec.training.optimizer.kind = Optimizer::kSgdMomentum;
  spec.training.optimizer.momentum = -1;
  EXPECT_THAT(std::string(TrainLocally(spec).status().message()),
              HasSubstr("optimizer.momentum must lie in (0, 1), is -1"));
  spec = job.spec;
  spec.weights_path = TempPath("nowhere.safetensors");
  EXPECT_EQ(TrainLocally(spec).status().code(), absl::StatusCode::kNotFound);
  spec = job.spec;
  spec.steps = 0;
  EXPECT_EQ(TrainLocally(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec = job.spec;
  spec.program = nullptr;
  spec.device = DeviceId(0);
  EXPECT_EQ(DeviceRunner::Create(spec, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  spec = job.spec;
  spec.device = DeviceId(99);
  EXPECT_THAT(std::string(DeviceRunner::Create(spec, nullptr).status().message()),
              HasSubstr("no work for device 99"));
  spec.device = spec.program->devices[0].device;
  EXPECT_THAT(std::string(DeviceRunner::Create(spec, nullptr).status().message()),
              HasSubstr("talks to others and has no transport"));

  auto data = Data();
  data["x"] = Random({kSamples, 5}, 1);
  WriteTensors(job.spec.data_path, data);
  EXPECT_THAT(std::string(TrainLocally(job.spec).status().message()),
              HasSubstr("tensor \"x\" is float64[27, 5], the graph wants float64[samples, 6]"));
  data = Data();
  for (auto& [name, tensor] : data) tensor = tensor.slice(0, 0, 5);
  WriteTensors(job.spec.data_path, data);
  EXPECT_THAT(std::string(TrainLocally(job.spec).status().message()),
              HasSubstr("a mini-batch of 8 is larger than the data set of 5 samples"));
}

TEST(Training, LeavesNoThreadsBehind) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator());
  };
  Job job(Classifier(), {.stages = 3, .most_replicas = 3});
  ASSERT_TRUE(TrainLocally(job.spec).ok());  // LibTorch starts its own.
  const auto before = threads();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(TrainLocally(job.spec).ok());
  EXPECT_EQ(threads(), before);
}

}  // namespace
}  // namespace stagewright::testing
