// Inputs on an accelerator are gathered ahead of the passes that load them, and are those of the
// processor whatever comes between two steps. Which accelerator: tested_accelerator.h.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/worker_daemon/executor/accelerated_jobs.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/plans/plans_by_hand.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiniBatch = 8, kSamples = 40, kWidth = 1024;
constexpr int64_t kSampleBytes = kWidth * 4;

// What the calling thread has read of files so far, by the kernel's count.
int64_t BytesReadHere() {
  std::ifstream file("/proc/thread-self/io");
  std::string name;
  int64_t bytes = -1;
  file >> name >> bytes;
  return name == "rchar:" ? bytes : -1;
}

// A job of two stages whose first reads samples of `length` rows. Sums over the rows make the
// parameters those of any length.
Graph WideGraph(int64_t length) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, length, kWidth});
  const int target = make.AddInput("target", {-1, 2});
  make.data.inputs[target].role = InputRole::kTarget;
  const int mean = make.AddNode("aten.mean.dim", {In(x), List({Int(1)})}, {Meta({-1, kWidth})});
  const int first = make.AddLinear("first", Value(mean), kWidth, 4);
  const int tanh = make.AddNode("aten.tanh.default", {Value(first)}, {Meta({-1, 4})});
  const int last = make.AddLinear("last", Value(tanh), 4, 2);
  const int loss = make.AddNode("aten.mse_loss.default", {Value(last), In(target)}, {Meta({})});
  ToFloat32(make);
  return make.Finish(loss);
}

void WriteSamples(const std::string& path, int64_t samples, int64_t length, uint64_t seed) {
  WriteTensors(path, {{"x", Random({samples, length, kWidth}, seed, at::kFloat)},
                      {"target", Random({samples, 2}, seed + 1, at::kFloat)}});
}

struct Shape {
  int stages = 1;
  int64_t micro_batch = kMiniBatch / 2;
  bool recompute = false;
  bool asynchronous = false;
};

void UseShape(const Graph& graph, const Shape& shape, std::shared_ptr<const Program>& training,
              std::shared_ptr<const Program>& evaluation) {
  const int end = static_cast<int>(graph.nodes().size()) - 1;
  std::vector<HandStage> stages = {{end, shape.micro_batch, 1, shape.recompute}};
  if (shape.stages == 2) {
    stages[0].last = 2;
    stages.push_back({end, shape.micro_batch});
  }
  Strategy strategy = PlanByHand(graph, kMiniBatch, stages);
  strategy.asynchronous = shape.asynchronous;
  const auto programs = LowerBoth(graph, strategy);
  ASSERT_TRUE(programs.ok()) << programs.status();
  training = programs->training;
  evaluation = programs->evaluation;
}

DeviceJob WideJob(const Shape& shape) {
  const std::string stem = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  DeviceJob spec;
  spec.graph = std::make_shared<const Graph>(WideGraph(1));
  UseShape(*spec.graph, shape, spec.program, spec.evaluation);
  spec.evaluation = nullptr;
  spec.weights_path = WriteWeights(*spec.graph, stem + "_weights.safetensors");
  spec.data_path = TempPath(stem + "_data.safetensors");
  WriteSamples(spec.data_path, kSamples, 1, 3);
  spec.training.optimizer.learning_rate = 0.1;
  spec.steps = 8;
  spec.seed = 5;
  spec.step_timeout = absl::Seconds(20);
  return spec;
}

void ExpectSameOnAccelerators(const DeviceJob& spec) {
  const auto expected = TrainLocally(spec);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto found = TrainLocally(spec, &Accelerate);
  ASSERT_TRUE(found.ok()) << found.status();
  ExpectSameCounts(*found, *expected);
  ASSERT_EQ(found->evaluations.size(), expected->evaluations.size());
  for (size_t i = 0; i < found->evaluations.size(); ++i) {
    EXPECT_NEAR(found->evaluations[i].loss, expected->evaluations[i].loss, 1e-5);
    EXPECT_EQ(found->evaluations[i].loss_samples, expected->evaluations[i].loss_samples);
  }
}

class GatheredInputs : public OnAccelerators {};

// The compute lane reads nothing where the thread beside it had the time.
TEST_F(GatheredInputs, AreNotReadByTheComputeLane) {
  if (BytesReadHere() < 0) GTEST_SKIP() << "the kernel does not count what a thread reads";
  DeviceJob spec = WideJob({});
  std::vector<int64_t> read;
  const auto found = TrainLocally(spec, [&](DeviceJob& own) {
    Accelerate(own);
    own.on_step = [&read, on_step = own.on_step](StepReport report) {
      on_step(std::move(report));
      read.push_back(BytesReadHere());
      absl::SleepFor(absl::Milliseconds(100));
    };
  });
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(read.size(), static_cast<size_t>(spec.steps));
  int steps_without = 0;
  for (size_t step = 1; step < read.size(); ++step)
    steps_without += read[step] - read[step - 1] < kSampleBytes ? 1 : 0;
  EXPECT_GE(steps_without, 5);  // Not all seven: a busy machine may let a thread sleep.
}

TEST_F(GatheredInputs, AreThoseOfTheProcessor) {
  for (const bool recompute : {false, true}) {
    for (const int stages : {1, 2}) {
      for (const int64_t micro_batch : {1, 4, 8}) {
        SCOPED_TRACE(absl::StrCat(stages, " stages, micro-batch ", micro_batch, recompute));
        ExpectSameOnAccelerators(
            WideJob({.stages = stages, .micro_batch = micro_batch, .recompute = recompute}));
      }
    }
  }
}

TEST_F(GatheredInputs, OfAsynchronousProgramsAreThoseOfTheProcessor) {
  for (const int64_t flush : {1, 2, 3, 8}) {
    SCOPED_TRACE(flush);
    DeviceJob spec = WideJob({.stages = 2, .micro_batch = 2, .asynchronous = true});
    spec.flush_after = [flush](int64_t step) { return (step / flush + 1) * flush; };
    ExpectSameOnAccelerators(spec);
  }
}

TEST_F(GatheredInputs, SurviveEvaluationsInBetween) {
  DeviceJob spec = WideJob({.stages = 2, .micro_batch = 2});
  UseShape(*spec.graph, {.stages = 2, .micro_batch = 2}, spec.program, spec.evaluation);
  spec.evaluation_path = TempPath("evaluated.safetensors");
  WriteSamples(spec.evaluation_path, 2 * kMiniBatch + 3, 1, 11);  // The last batch is filled up.
  spec.training.evaluation.every = 2;
  ExpectSameOnAccelerators(spec);
}

TEST_F(GatheredInputs, OfSeveralLengthsAreThoseOfTheProcessor) {
  DeviceJob spec = WideJob({});
  const std::string data = TempPath("several_lengths");
  std::filesystem::create_directories(data);
  int64_t part = 0;
  for (const int64_t length : {1, 3, 2}) {
    WriteSamples(absl::StrCat(data, "/part-", part++, ".safetensors"), 2 * kMiniBatch + length,
                 length, static_cast<uint64_t>(20 + 2 * length));
  }
  spec.data_path = spec.evaluation_path = data;
  const Shape shape{.stages = 2, .micro_batch = 4};
  spec.graph = std::make_shared<const Graph>(WideGraph(3));
  UseShape(*spec.graph, shape, spec.program, spec.evaluation);
  for (const int64_t length : {2, 1}) {
    LengthSpec other{std::make_shared<const Graph>(WideGraph(length)), nullptr, nullptr};
    UseShape(*other.graph, shape, other.program, other.evaluation);
    spec.lengths.push_back(std::move(other));
  }
  spec.steps = 13;
  ExpectSameOnAccelerators(spec);
}

// What cannot be read fails the step that reads it, and no other.
TEST_F(GatheredInputs, FailInTheStepThatLoadsThem) {
  for (const int64_t last : {2, 3}) {  // The step before the one that fails, and that.
    DeviceJob spec = WideJob({});
    spec.order = SampleOrder::kSequential;
    spec.steps = last + 1;
    int64_t steps = 0;
    const auto cut = [&](DeviceJob& own) {
      steps = 0;
      WriteSamples(spec.data_path, kSamples, 1, 3);
      own.on_step = [&, on_step = own.on_step](StepReport report) {
        on_step(std::move(report));
        // Samples from the fourth step's second micro-batch on are gone.
        if (++steps == 1) {
          const auto size = std::filesystem::file_size(spec.data_path);
          const int64_t kept = 3 * kMiniBatch + kMiniBatch / 2;
          std::filesystem::resize_file(spec.data_path, size - (kSamples - kept) * kSampleBytes);
        }
      };
    };
    const absl::Status expected = TrainLocally(spec, cut).status();
    const absl::Status found = TrainLocally(spec, [&](DeviceJob& own) {
                                 cut(own);
                                 Accelerate(own);
                               }).status();
    EXPECT_EQ(found, expected);
    EXPECT_EQ(steps, 3);
    if (last == 2) {
      EXPECT_TRUE(found.ok()) << found;
    } else {
      EXPECT_EQ(found.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(found.message()), HasSubstr("step 3"));
    }
  }
}

}  // namespace
}  // namespace stagewright::testing
