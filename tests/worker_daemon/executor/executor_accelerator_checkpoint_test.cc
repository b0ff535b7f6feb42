// Checkpoints of what lies on an accelerator that has not come to it yet.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/simulated_accelerator.h"
#include "worker_daemon/executor/device_checkpoint.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/stage/parameter_store.h"

namespace stagewright::testing {
namespace {

class AcceleratorCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    spec_ = ClassifierJob("late_checkpoint", /*dropout=*/false, 1);
    Load();
  }
  void TearDown() override { LimitAllocations(0); }

  // The job on one device, before its first step.
  void Load() {
    UseOneDevice(spec_);
    spec_.device = spec_.program->devices.front().device;
    spec_.checkpoint_root = TempPath("late_checkpoint");
    spec_.on_checkpoint = [this](CheckpointReport report) { report_ = std::move(report); };
    const DeviceStreams::Scope on(streams_.get());
    for (size_t i = 0; i < spec_.graph->parameters().size(); ++i)
      ids_.push_back(ParameterId(static_cast<int64_t>(i)));
    auto loaded = ParameterStore::Load(*spec_.graph, ids_, spec_.weights_path, device_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    parameters_.emplace(*std::move(loaded));
  }

  // A graph with a large frozen weight, and a normalisation, whose statistics passes change.
  void LoadFrozen() {
    GraphMaker make;
    const int x = make.AddInput("x", {-1, 4});
    const int table = make.AddParameter("table", {kLarge, 4}, /*trainable=*/false);
    const int wide =
        make.AddNode("aten.linear.default", {In(x), Param(table)}, {Meta({-1, kLarge})});
    const int head = make.AddLinear("head", Value(wide), kLarge, 4);
    const int mean = make.AddParameter("mean", {4}, /*trainable=*/false);
    const int variance = make.AddParameter("variance", {4}, /*trainable=*/false);
    const int norm = make.AddNode("aten.batch_norm.default",
                                  {Value(head), Nothing(), Nothing(), Param(mean), Param(variance),
                                   Bool(true), Real(0.1), Real(1e-5), Bool(false)},
                                  {Meta({-1, 4})});
    make.data.nodes.back().batch_dependent = true;
    const int loss = make.AddNode("aten.mean.default", {Value(norm)}, {Meta({})});
    ToFloat32(make);
    spec_.graph = std::make_shared<const Graph>(make.Finish(loss));
    spec_.weights_path = WriteWeights(*spec_.graph, "frozen_weights.safetensors");
    ids_.clear();
    Load();
  }

  // Queues what an optimizer step does, or another pass to those that it changes: every parameter
  // becomes `value`.
  void QueueUpdate(float value, bool (*changes)(const Parameter&) = nullptr) {
    for (ParameterId id : ids_) {
      if (changes != nullptr && !changes(spec_.graph->parameter(id))) continue;
      const at::Tensor& parameter = (*parameters_)[id];
      QueueOn(*streams_->compute(),
              [data = static_cast<float*>(parameter.data_ptr()), n = parameter.numel(), value] {
                std::fill(data, data + n, value);
              });
    }
  }

  static constexpr int64_t kLarge = 1000;

  const at::Device device_ = at::Device("simulated:0");
  const std::unique_ptr<DeviceStreams> streams_ = MakeDeviceStreams(device_);
  DeviceJob spec_;
  std::vector<ParameterId> ids_;
  std::optional<ParameterStore> parameters_;
  CheckpointReport report_;
};

TEST_F(AcceleratorCheckpoint, SavesTheStepBeforeAndHoldsUpTheOneAfter) {
  const ParameterOptimizer optimizer(spec_.training.optimizer, *parameters_, {});
  DeviceCheckpoint checkpoint(spec_, *parameters_, optimizer, nullptr, nullptr, streams_.get());
  const DeviceStreams::Scope on(streams_.get());
  std::optional<Hold> pass(*streams_->compute());
  QueueUpdate(3);
  checkpoint.Begin(1);  // Does not wait for the device.
  absl::Notification copied;
  std::thread next([&] {
    checkpoint.AwaitCopied();
    copied.Notify();
    QueueUpdate(4);
  });
  EXPECT_FALSE(copied.WaitForNotificationWithTimeout(absl::Milliseconds(200)));
  pass.reset();
  next.join();
  checkpoint.AwaitWritten();
  ASSERT_TRUE(report_.status.ok()) << report_.status;
  size_t compared = 0;
  for (const CheckpointFile& file : report_.files) {
    const auto tensors =
        ReadTensors(absl::StrCat(CheckpointDirectory(spec_.checkpoint_root, 1), "/", file.name));
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    for (const auto& [name, value] : *tensors) {
      EXPECT_TRUE(value.eq(3).all().item<bool>()) << name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, ids_.size());
}

TEST_F(AcceleratorCheckpoint, TakesMemoryOnTheDeviceForWhatPassesChangeAlone) {
  LoadFrozen();
  const ParameterOptimizer optimizer(spec_.training.optimizer, *parameters_, {});
  DeviceCheckpoint checkpoint(spec_, *parameters_, optimizer, nullptr, nullptr, streams_.get());
  const DeviceStreams::Scope on(streams_.get());
  std::optional<Hold> pass(*streams_->compute());
  QueueUpdate(3);
  LimitAllocations(kLarge);
  checkpoint.Begin(1);
  // The next pass begins before anything is copied to the host.
  QueueUpdate(4, [](const Parameter& parameter) { return parameter.shape.size() == 1; });
  pass.reset();
  checkpoint.AwaitWritten();
  ASSERT_TRUE(report_.status.ok()) << report_.status;
  const auto tensors = ReadTensors(
      absl::StrCat(CheckpointDirectory(spec_.checkpoint_root, 1), "/", report_.files.at(0).name));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  for (const char* name : {"table", "mean", "variance"})
    EXPECT_TRUE(tensors->at(name).eq(3).all().item<bool>()) << name;
}

TEST_F(AcceleratorCheckpoint, WithoutMemoryForItTheCheckpointFailsAndNothingElse) {
  LoadFrozen();
  const ParameterOptimizer optimizer(spec_.training.optimizer, *parameters_, {});
  DeviceCheckpoint checkpoint(spec_, *parameters_, optimizer, nullptr, nullptr, streams_.get());
  const DeviceStreams::Scope on(streams_.get());
  LimitAllocations(1);
  checkpoint.Begin(1);
  EXPECT_EQ(report_.step, 1);
  EXPECT_FALSE(report_.skipped);
  EXPECT_EQ(report_.status.code(), absl::StatusCode::kResourceExhausted);
  checkpoint.AwaitCopied();
  checkpoint.AwaitWritten();
  LimitAllocations(0);
  checkpoint.Begin(2);
  checkpoint.AwaitWritten();
  EXPECT_EQ(report_.step, 2);
  EXPECT_TRUE(report_.status.ok()) << report_.status;
}

}  // namespace
}  // namespace stagewright::testing
