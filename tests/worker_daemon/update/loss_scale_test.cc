#include "worker_daemon/update/loss_scale.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/synchronization/mutex.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/training_result.h"
#include "worker_daemon/executor/device_checkpoint.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 10;

TEST(LossScale, GrowsAfterGoodStepsInARow) {
  LossScale scale({.initial = 8, .interval = 3});
  for (int i = 0; i < 2; ++i) scale.Update(true);
  EXPECT_EQ(scale.value(), 8);
  EXPECT_EQ(scale.good_steps(), 2);
  scale.Update(true);
  EXPECT_EQ(scale.value(), 16);
  EXPECT_EQ(scale.good_steps(), 0);
}

TEST(LossScale, FallsAtOnceAndCountsAgain) {
  LossScale scale({.initial = 8, .interval = 3});
  for (const bool finite : {true, true, false, true, true}) scale.Update(finite);
  EXPECT_EQ(scale.value(), 4);
  scale.Update(true);
  EXPECT_EQ(scale.value(), 8);
}

TEST(LossScale, StaysWithinFloat32) {
  LossScale large({.initial = 0x1p127, .interval = 1});
  large.Update(true);
  EXPECT_EQ(large.value(), 0x1p127);
  LossScale small({.initial = 4, .least = 1});
  EXPECT_FALSE(small.exhausted());
  for (int i = 0; i < 5; ++i) small.Update(false);
  EXPECT_EQ(small.value(), 1);
  EXPECT_TRUE(small.exhausted());
}

TEST(LossScale, GoesOnFromAState) {
  LossScale scale({.initial = 8, .interval = 3}, 2, 2);
  scale.Update(true);
  EXPECT_EQ(scale.value(), 4);
}

// What a device reported of each step.
struct Steps {
  std::vector<double> scales;
  std::vector<bool> skipped;
};

class ScaledTraining : public ::testing::Test {
 protected:
  ScaledTraining() : spec_(ClassifierJob(Name(), /*dropout=*/false, kSteps)) {
    spec_.training.precision = Precision::kFloat16;
    UsePlan(spec_, {.stages = 3, .most_replicas = 2, .micro_batches = 2}, 4);
  }
  static std::string Name() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  // Trains, and expects all devices to report the same scales and skipped steps.
  TrainingResult Train(Steps* steps, const DeviceJob& spec) {
    absl::Mutex mutex;
    std::map<int32_t, Steps> of;
    auto result = TrainLocally(spec, [&](DeviceJob& own) {
      own.on_step = [&, device = own.device.value(), before = own.on_step](StepReport report) {
        {
          absl::MutexLock lock(&mutex);
          of[device].scales.push_back(report.loss_scale);
          of[device].skipped.push_back(report.skipped);
        }
        before(std::move(report));
      };
    });
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(of.size(), spec.program->devices.size());
    *steps = of.empty() ? Steps() : of.begin()->second;
    for (const auto& [device, other] : of) {
      EXPECT_EQ(other.scales, steps->scales) << device;
      EXPECT_EQ(other.skipped, steps->skipped) << device;
    }
    return result.ok() ? *std::move(result) : TrainingResult();
  }

  DeviceJob spec_;
};

// Float16 ends at 65504, so gradients overflow until the scale has come down; then it grows again.
TEST_F(ScaledTraining, SkipsStepsUntilTheScaleFits) {
  spec_.training.loss_scale = {.initial = 0x1p18, .interval = 4};
  Steps steps;
  const TrainingResult result = Train(&steps, spec_);
  ASSERT_EQ(steps.scales.size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(steps.scales[0], 0x1p18);
  size_t first = 0;
  while (first < steps.skipped.size() && steps.skipped[first]) ++first;
  ASSERT_GT(first, 0u);
  ASSERT_LT(first + 4, steps.skipped.size());
  for (size_t i = 0; i <= first; ++i)
    EXPECT_EQ(steps.scales[i], std::ldexp(0x1p18, -static_cast<int>(i)));
  EXPECT_EQ(steps.scales[first + 4], 2 * steps.scales[first]);
  // A skipped step changes nothing: the steps after it see the weights of the start.
  for (const auto& [name, value] : result.parameters)
    EXPECT_TRUE(at::isfinite(value).all().item<bool>()) << name;
}

// Powers of two scale exactly: unless something vanishes or overflows, the scale is not to be seen.
TEST_F(ScaledTraining, TheScaleDoesNotShowInTheResult) {
  Steps steps;
  spec_.training.loss_scale.initial = 0x1p8;
  const TrainingResult expected = Train(&steps, spec_);
  spec_.training.loss_scale.initial = 0x1p11;
  const TrainingResult result = Train(&steps, spec_);
  for (const auto& [name, value] : expected.parameters)
    EXPECT_LT(RelativeError(result.parameters.at(name), value), 1e-4) << name;
  for (bool skipped : steps.skipped) EXPECT_FALSE(skipped);
  // Clipping sees gradients without the scale.
  spec_.training.max_gradient_norm = 0.05;
  const TrainingResult clipped = Train(&steps, spec_);
  spec_.training.loss_scale.initial = 0x1p8;
  const TrainingResult also_clipped = Train(&steps, spec_);
  for (const auto& [name, value] : clipped.parameters) {
    EXPECT_LT(RelativeError(also_clipped.parameters.at(name), value), 1e-4) << name;
    EXPECT_GT(RelativeError(expected.parameters.at(name), value), 1e-3) << name;
  }
}

TEST_F(ScaledTraining, GradientsThatStayBadStopTheJob) {
  spec_.training.loss_scale = {.initial = 0x1p21, .least = 0x1p20};
  const absl::Status status = TrainLocally(spec_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step 1,"), HasSubstr("with a loss scale of 1.04858e+06, too")));
}

// The scale is not to blame then, but it cannot know; what the job does is for its policy to say.
TEST_F(ScaledTraining, ALossThatIsNotFiniteIsForThePolicy) {
  spec_.training.loss_scale = {.initial = 4, .least = 1};
  at::Tensor x = Random({64, 12}, 5, at::kFloat);
  const at::Tensor target = x.narrow(1, 0, 5).argmax(1);
  x.fill_(std::numeric_limits<float>::infinity());
  WriteTensors(spec_.data_path, {{"x", x}, {"target", target}});
  spec_.training.on_non_finite = NonFinite::kStop;
  EXPECT_THAT(std::string(TrainLocally(spec_).status().message()), HasSubstr("the loss is nan"));
  spec_.training.on_non_finite = NonFinite::kContinue;
  Steps steps;
  Train(&steps, spec_);
  EXPECT_THAT(steps.scales, ElementsAre(4, 2, 1, 1, 1, 1, 1, 1, 1, 1));
}

TEST_F(ScaledTraining, AResumedJobGoesOnWithTheScale) {
  spec_.training.loss_scale = {.initial = 0x1p18, .interval = 3};
  Steps whole;
  const TrainingResult expected = Train(&whole, spec_);

  const int64_t taken = 6;
  absl::Mutex mutex;
  Manifest manifest;
  DeviceJob saving = spec_;
  saving.checkpoint_root = TempPath(Name() + "_checkpoints");
  saving.checkpoint_due = [&](int64_t steps) { return steps == taken; };
  saving.on_checkpoint = [&](CheckpointReport report) {
    EXPECT_EQ(report.status, absl::OkStatus());
    absl::MutexLock lock(&mutex);
    manifest.files.insert(manifest.files.end(), report.files.begin(), report.files.end());
  };
  Steps unused;
  Train(&unused, saving);
  manifest.step = taken;
  manifest.samples = taken * spec_.program->mini_batch;
  manifest.seed = spec_.seed;
  manifest.optimizer = StateName(spec_.training.optimizer.kind);
  const std::string directory = CheckpointDirectory(saving.checkpoint_root, taken);
  ASSERT_EQ(CompleteCheckpoint(directory, *spec_.graph, manifest), absl::OkStatus());
  auto checkpoint = Checkpoint::Open(directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();

  DeviceJob resumed = spec_;
  resumed.resume = std::make_shared<const Checkpoint>(*std::move(checkpoint));
  Steps rest;
  const TrainingResult result = Train(&rest, resumed);
  EXPECT_EQ(rest.scales, std::vector<double>(whole.scales.begin() + taken, whole.scales.end()));
  EXPECT_EQ(rest.skipped, std::vector<bool>(whole.skipped.begin() + taken, whole.skipped.end()));
  for (const auto& [name, value] : expected.parameters)
    EXPECT_TRUE(at::equal(result.parameters.at(name), value)) << name;

  // Under another plan, too; and a job in another precision needs no scale.
  UsePlan(resumed, {.stages = 2, .micro_batches = 4}, 9);
  Train(&rest, resumed);
  EXPECT_EQ(rest.scales.front(), whole.scales[taken]);
  resumed.training.precision = Precision::kGraph;
  UsePlan(resumed, {.stages = 2, .micro_batches = 4}, 9);
  Train(&rest, resumed);
  EXPECT_EQ(rest.scales.front(), 0);
}

}  // namespace
}  // namespace stagewright::testing
