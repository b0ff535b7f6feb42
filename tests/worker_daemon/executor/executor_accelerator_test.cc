// Jobs on an accelerator, several devices of the job on one, train as on the processor. Which
// accelerator: tested_accelerator.h.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/worker_daemon/executor/accelerated_jobs.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/spy_transport.h"
#include "tests/worker_daemon/support/transports/transport_factory.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/executor/device_runner.h"
#if STAGEWRIGHT_HAVE_UCX
#include "worker_daemon/transport/ucx/ucx_transport.h"
#endif

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

// Reports figures later than it must.
class LateStreams : public DeviceStreams {
 public:
  explicit LateStreams(const std::string& device) : real_(MakeDeviceStreams(at::Device(device))) {}

  std::optional<c10::Stream> compute() const override { return real_->compute(); }
  Mark Record() override { return real_->Record(); }
  void Await(const Mark& mark) override { real_->Await(mark); }
  void QueueOut(const Mark& after, const std::function<void()>& work) override {
    real_->QueueOut(after, work);
  }
  void QueueIn(Bytes bytes, const std::function<void(at::Tensor)>& work) override {
    real_->QueueIn(bytes, work);
  }
  void CopyOut(const Mark& after, std::function<at::Tensor()> make, at::Tensor host,
               Done done) override {
    const absl::Duration late = absl::Milliseconds(host.nbytes() <= 16 ? 50 : 0);  // Figures.
    real_->CopyOut(after, std::move(make), std::move(host),
                   [report = std::move(done), late](absl::Status status) {
                     absl::SleepFor(late);
                     report(std::move(status));
                   });
  }
  Arrived CopyIn(at::Tensor host) override { return real_->CopyIn(std::move(host)); }
  Arrived Adopt(std::vector<at::Tensor> tensors, const Mark& made) override {
    return real_->Adopt(std::move(tensors), made);
  }

 private:
  const std::unique_ptr<DeviceStreams> real_;
};

void AccelerateLate(DeviceJob& own) {
  Accelerate(own);
  own.streams = std::make_shared<LateStreams>(own.torch_device);
}

// How the devices of a job reach each other.
struct Way {
  const char* name;
  TransportFactory (*make)(SpyLog& log);
};

#if STAGEWRIGHT_HAVE_UCX
TransportFactory HostTransport(SpyLog&) {
  return [](const TransportIdentity& identity) -> absl::StatusOr<std::unique_ptr<Transport>> {
    return UcxTransport::Create(identity);
  };
}
#endif

class TrainOver : public OnAccelerators, public ::testing::WithParamInterface<Way> {};

TEST_P(TrainOver, TheSameAsProcessors) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    DeviceJob spec = ClassifierJob("accelerated", /*dropout=*/true, 3);
    if (seed % 2 == 0) spec.training.max_gradient_norm = 1;
    if (seed == 3) spec.training.optimizer.kind = Optimizer::kAdam;
    UsePlan(spec,
            {.stages = 2 + static_cast<int>(seed % 3),
             .most_replicas = 1 + static_cast<int>(seed % 2),
             .share_devices = seed == 4,
             .recompute = seed == 5},
            seed,
            seed == 3   ? OptimizerSharding::kStates
            : seed == 5 ? OptimizerSharding::kGradients
                        : OptimizerSharding::kNone);
    const auto expected = TrainLocally(spec);
    ASSERT_TRUE(expected.ok()) << expected.status();
    SpyLog log;
    const auto found = TrainLocally(spec, &Accelerate, GetParam().make(log));
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectSameCounts(*found, *expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, TrainOver,
                         ::testing::Values(
#if STAGEWRIGHT_HAVE_UCX
                             Way{"Host", &HostTransport},
#endif
                             Way{"Reference", [](SpyLog& log) { return SpyOn(log, true); }},
                             Way{"Bytes", [](SpyLog& log) { return SpyOn(log, false); }}),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Where parameters are stepped together, also those of two groups, which lie among each other.
TEST_F(OnAccelerators, EveryOptimizerStepsTheSame) {
  for (const char* name : {"sgd", "momentum", "nesterov", "adam", "adamw"}) {
    SCOPED_TRACE(name);
    DeviceJob spec = ClassifierJob("accelerated_optimizer", /*dropout=*/false, 4);
    const bool nesterov = name == std::string("nesterov");
    OptimizerSpec& optimizer = spec.training.optimizer;
    const double rate = optimizer.learning_rate;
    optimizer = *OptimizerByName(nesterov ? "momentum" : name);
    optimizer.nesterov = nesterov;
    optimizer.learning_rate = rate;
    optimizer.weight_decay = 0.3;
    optimizer.groups = {{.pattern = "*bias", .weight_decay = 0, .learning_rate_scale = 0.5}};
    UseOneDevice(spec, 2);
    const auto expected = TrainLocally(spec);
    const auto found = TrainLocally(spec, &Accelerate);
    ASSERT_TRUE(expected.ok() && found.ok()) << expected.status() << found.status();
    ExpectSameCounts(*found, *expected);
  }
}

TEST_F(OnAccelerators, EvaluationsCountTheSame) {
  DeviceJob spec = ClassifierJob("accelerated_evaluation", /*dropout=*/false, 2);
  std::mt19937_64 random(2);
  const auto programs = LowerBoth(
      *spec.graph,
      ForceStrategy(*spec.graph, {.stages = 3, .mini_batch = 24, .most_replicas = 2}, random));
  ASSERT_TRUE(programs.ok()) << programs.status();
  spec.program = programs->training;
  spec.evaluation = programs->evaluation;
  spec.evaluation_path = spec.data_path;
  const auto expected = TrainLocally(spec);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto found = TrainLocally(spec, &AccelerateLate);
  ASSERT_TRUE(found.ok()) << found.status();
  ExpectSameCounts(*found, *expected);
  ASSERT_EQ(found->evaluations.size(), expected->evaluations.size());
  for (size_t i = 0; i < found->evaluations.size(); ++i) {
    EXPECT_NEAR(found->evaluations[i].loss, expected->evaluations[i].loss, 1e-5);
    EXPECT_EQ(found->evaluations[i].loss_samples, expected->evaluations[i].loss_samples);
    EXPECT_EQ(found->evaluations[i].correct, expected->evaluations[i].correct);
    EXPECT_EQ(found->evaluations[i].predicted, expected->evaluations[i].predicted);
  }
}

// What is saved is what the steps before made, though the device has not come to it, and though
// the next steps change it.
TEST_F(OnAccelerators, CheckpointsAreOfTheirStep) {
  DeviceJob spec = ClassifierJob("accelerated_checkpoint", /*dropout=*/true, 5);
  spec.training.optimizer.kind = Optimizer::kAdam;
  UseOneDevice(spec, 2);
  absl::Mutex mutex;
  std::map<int64_t, std::vector<CheckpointFile>> files;
  DeviceJob saving = spec;
  saving.checkpoint_root = TempPath("accelerated_checkpoints");
  saving.checkpoint_due = [](int64_t steps) { return steps == 2 || steps == 4; };
  saving.on_checkpoint = [&](CheckpointReport report) {
    EXPECT_TRUE(report.status.ok() || report.skipped) << report.status;
    absl::MutexLock lock(&mutex);
    if (!report.skipped) files[report.step] = std::move(report.files);
  };
  const auto whole = TrainLocally(spec);
  const auto saved = TrainLocally(saving, &Accelerate);
  ASSERT_TRUE(whole.ok() && saved.ok()) << whole.status() << saved.status();
  ExpectSameCounts(*saved, *whole);
  ASSERT_TRUE(files.contains(2));
  for (const auto& [step, written] : files) {
    SCOPED_TRACE(step);
    DeviceJob shorter = spec;
    shorter.steps = step;
    const auto expected = TrainLocally(shorter);
    ASSERT_TRUE(expected.ok()) << expected.status();
    size_t compared = 0;
    for (const CheckpointFile& file : written) {
      const auto tensors = ReadTensors(
          absl::StrCat(CheckpointDirectory(saving.checkpoint_root, step), "/", file.name));
      ASSERT_TRUE(tensors.ok()) << tensors.status();
      for (const auto& [name, value] : *tensors) {
        const auto parameter = expected->parameters.find(name);
        if (parameter == expected->parameters.end()) continue;
        EXPECT_LT(RelativeError(value, parameter->second), 1e-5) << name;
        ++compared;
      }
    }
    EXPECT_EQ(compared, spec.graph->parameters().size());
  }
}

// A job whose second step meets a sample that is no number.
DeviceJob Poisoned() {
  DeviceJob spec = ClassifierJob("accelerated_nan", /*dropout=*/false, 3);
  auto data = ReadTensors(spec.data_path);
  EXPECT_TRUE(data.ok()) << data.status();
  (*data)["x"][16 + 13][2] = std::nanf("");
  WriteTensors(spec.data_path, *data);
  spec.order = SampleOrder::kSequential;
  return spec;
}

// The loss comes to the host after its pass was left behind; what is said about it, and when, is
// the same.
TEST_F(OnAccelerators, ALossThatIsNotANumberStopsTheJob) {
  DeviceJob spec = Poisoned();
  UsePlan(spec, {.stages = 3, .micro_batches = 4}, 1);
  const absl::Status expected = TrainLocally(spec).status();
  ASSERT_EQ(expected.code(), absl::StatusCode::kFailedPrecondition) << expected;
  ASSERT_THAT(std::string(expected.message()), HasSubstr("step 1"));
  for (int attempt = 0; attempt < 5; ++attempt) {
    const absl::Status found =
        TrainLocally(spec, attempt == 0 ? &AccelerateLate : &Accelerate).status();
    EXPECT_EQ(found, expected);
  }
}

TEST_F(OnAccelerators, NoParameterChangesAfterALossThatIsNotANumber) {
  DeviceJob spec = Poisoned();
  UseOneDevice(spec, 4);
  spec.device = spec.program->devices.front().device;
  AccelerateLate(spec);
  const auto parameters_after = [&](int64_t steps) {
    DeviceJob own = spec;
    own.steps = steps;
    auto runner = DeviceRunner::Create(own, nullptr);
    EXPECT_TRUE(runner.ok()) << runner.status();
    EXPECT_EQ((*runner)->Run().code(),
              steps == 1 ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition);
    const auto shard = (*runner)->WriteShard(TempPath(""));
    EXPECT_TRUE(shard.ok()) << shard.status();
    return *ReadTensors(*shard);
  };
  const auto before = parameters_after(1), after = parameters_after(3);
  ASSERT_FALSE(before.empty());
  for (const auto& [name, value] : before) EXPECT_TRUE(at::equal(after.at(name), value)) << name;
}

TEST_F(OnAccelerators, AStepOfALossThatIsNotANumberIsSkipped) {
  DeviceJob spec = Poisoned();
  spec.training.on_non_finite = NonFinite::kSkip;
  UsePlan(spec, {.stages = 3, .micro_batches = 4}, 1);
  std::atomic<int> skipped = 0;
  const auto count = [&](DeviceJob& own) {
    own.on_step = [&skipped, on_step = own.on_step](StepReport report) {
      if (report.skipped) ++skipped;
      on_step(std::move(report));
    };
  };
  const auto expected = TrainLocally(spec, count);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const int expected_skipped = skipped.exchange(0);
  const auto found = TrainLocally(spec, [&](DeviceJob& own) {
    count(own);
    AccelerateLate(own);
  });
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(skipped, expected_skipped);
  EXPECT_GT(expected_skipped, 0);
  EXPECT_TRUE(std::isnan(found->losses[1]));
  for (const auto& [name, value] : expected->parameters)
    EXPECT_LT(RelativeError(found->parameters.at(name), value), 1e-5) << name;
}

// Nor do the gradients tell: the loss has a part that does not depend on the parameters.
TEST_F(OnAccelerators, TheLossAloneMaySkipAStep) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4});
  const int linear = make.AddLinear("linear", In(x), 4, 4);
  const int tanh = make.AddNode("aten.tanh.default", {Value(linear)}, {Meta({-1, 4})});
  const int log = make.AddNode("aten.log.default", {In(x)}, {Meta({-1, 4})});
  const int sum = make.AddNode("aten.add.Tensor", {Value(tanh), Value(log)}, {Meta({-1, 4})});
  const int loss = make.AddNode("aten.mean.default", {Value(sum)}, {Meta({})});
  DeviceJob spec = ClassifierJob("accelerated_loss", /*dropout=*/false, 3);
  spec.graph = std::make_shared<const Graph>(make.Finish(loss));
  spec.weights_path = WriteWeights(*spec.graph, "accelerated_loss_weights.safetensors");
  at::Tensor data = Random({48, 4}, 1).abs() + 0.1;
  data[20][1] = -1;
  WriteTensors(spec.data_path, {{"x", data}});
  spec.order = SampleOrder::kSequential;
  spec.training.on_non_finite = NonFinite::kSkip;
  UseOneDevice(spec, 4);
  std::vector<bool> skipped;
  const auto found = TrainLocally(spec, [&](DeviceJob& own) {
    AccelerateLate(own);
    own.on_step = [&skipped, on_step = own.on_step](StepReport report) {
      skipped.push_back(report.skipped);
      on_step(std::move(report));
    };
  });
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(skipped, (std::vector<bool>{false, true, false}));
}

}  // namespace
}  // namespace stagewright::testing
