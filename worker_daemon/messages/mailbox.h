// Pieces of tensors on their way between stages, until the micro-batch that needs them runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <tuple>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/program/step_samples.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/messages/tensor_pieces.h"

namespace stagewright {

// Values of one channel for some samples.
struct TensorPiece {
  StepSamples samples;
  std::vector<at::Tensor> tensors;      // Parallel to the channel's values or gradient values.
  DeviceStreams::Mark ready = nullptr;  // The compute stream waits for it before it uses them.
};

// Thread-safe.
class Mailbox {
 public:
  void Put(int32_t channel, Direction direction, TensorPiece piece);

  // Removes and returns the pieces of the channel that lie within `samples`, by their first one.
  std::vector<TensorPiece> Take(int32_t channel, Direction direction, const StepSamples& samples);

  void Clear();

 private:
  using Key = std::tuple<int32_t, Direction, StepSamples>;
  absl::Mutex mutex_;
  std::map<Key, TensorPiece> pieces_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagewright
