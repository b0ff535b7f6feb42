// The share of one device in checkpoints: taken while the next step runs, written in the
// background, read back when a job resumes.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "worker_daemon/checkpoint/unread_tensors.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/update/loss_scale.h"
#include "worker_daemon/update/optimizer.h"

namespace stagewright {

// INVALID_ARGUMENT, naming the checkpoint, unless the job continues the run that it is of: with the
// same seed, order of samples, samples per step and kind of optimizer, and steps left to do.
absl::Status CheckResume(const DeviceJob& spec);

// The job's first step: as many as the checkpoint has done.
int64_t FirstStep(const DeviceJob& spec);

// Parameters from the checkpoint if the job has one, otherwise from its weights. Errors of
// ParameterStore::Load.
absl::StatusOr<ParameterStore> LoadParameters(const DeviceJob& spec,
                                              const std::vector<ParameterId>& ids,
                                              at::Device device);

// The optimizer's state of those parameters. INVALID_ARGUMENT names checkpoint and parameter.
absl::Status RestoreOptimizer(const DeviceJob& spec, const std::vector<ParameterId>& ids,
                              ParameterOptimizer& optimizer);

// The state of the loss's scale: that of the checkpoint if the job has one and it has that,
// otherwise a fresh one. DATA_LOSS names a checkpoint in which it is damaged.
absl::StatusOr<LossScale> RestoreLossScale(const DeviceJob& spec);

// Evaluations of the run that the job goes on with.
EvaluationHistory HistoryOf(const DeviceJob& spec);

// Saves the share of a device. Parameters and optimizer state change in optimizer steps only, so
// they are copied on another thread while the next passes run, from an accelerator on a stream of
// its own, and so is what is frozen; buffers that passes change are copied at once, and stay on the
// accelerator until then.
class DeviceCheckpoint {
 public:
  // All outlive it. `loss_scale` may be null, `unread` is but on the device that writes them, and
  // `streams` is on a CPU.
  DeviceCheckpoint(const DeviceJob& spec, const ParameterStore& parameters,
                   const ParameterOptimizer& optimizer, const LossScale* loss_scale,
                   const UnreadTensors* unread = nullptr, DeviceStreams* streams = nullptr)
      : spec_(&spec),
        parameters_(&parameters),
        optimizer_(&optimizer),
        loss_scale_(loss_scale),
        unread_(unread),
        streams_(streams) {}
  ~DeviceCheckpoint();

  // Begins to save the state after `steps` steps, which is reported through the spec's
  // on_checkpoint, as is what fails, such as memory for it. While the last one is still being
  // written it waits for that first, so that when a step is due the last one is whole
  // (checkpoint_policy.h); a storage that takes longer than half of a step may is not waited for,
  // since others wait for this device meanwhile: then this one is skipped, and so are those after
  // it until the last one is written. Under the spec's await_checkpoints it waits in the same way
  // until this one is written.
  void Begin(int64_t steps, const EvaluationHistory& evaluations = {});
  // Returns when nothing reads parameters and state any more: before an optimizer step.
  void AwaitCopied();
  // Returns when the last one is reported.
  void AwaitWritten();

 private:
  // A tensor to be saved, with its name in the file.
  struct Item {
    std::string name;
    DType dtype = DType::kFloat32;
    at::Tensor tensor;
    bool copied = false;  // Nobody else changes it.
  };
  // A checkpoint for the thread to write.
  struct Order {
    int64_t steps = 0;
    EvaluationHistory evaluations;
  };
  // Whether the last one is written, or is soon.
  bool AwaitLast();
  void Collect();
  void CollectState(ParameterId id);
  void Loop();
  void Write(const Order& order);

  const DeviceJob* const spec_;
  const ParameterStore* const parameters_;
  const ParameterOptimizer* const optimizer_;
  const LossScale* const loss_scale_;
  const UnreadTensors* const unread_;
  DeviceStreams* const streams_;
  std::unique_ptr<DeviceStreams> copies_;  // With streams_: the thread's own.
  DeviceStreams::Mark ready_;              // Behind which the items are what is to be saved.
  std::vector<Item> model_, state_;        // The thread's while it runs.
  // One for all checkpoints: the allocator keeps memory per thread, and a new one each time would
  // let it grow.
  std::thread thread_;
  absl::Mutex mutex_;
  std::optional<Order> order_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool copying_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;  // Until it is reported.
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;    // What is being written was waited for in vain.
  absl::Duration stall_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagewright
