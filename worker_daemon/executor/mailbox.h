// Pieces of tensors on their way between stages, until the micro-batch that needs them runs.
//
// Where neighbouring stages differ in micro-batch size or replicas, a micro-batch is put together
// from several pieces, and one micro-batch is cut into several (design section 3).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <tuple>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/sample_range.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "worker_daemon/device/device_streams.h"

namespace stagewright {

enum class Direction : uint8_t { kActivation, kGradient };

// Values of one channel for some samples.
struct TensorPiece {
  SampleRange samples;
  std::vector<at::Tensor> tensors;      // Parallel to the channel's values or gradient values.
  DeviceStreams::Mark ready = nullptr;  // The compute stream waits for it before it uses them.
};

// Thread-safe.
class Mailbox {
 public:
  void Put(int32_t channel, Direction direction, TensorPiece piece);

  // Removes and returns the pieces of the channel that lie within `range`, by their first sample.
  std::vector<TensorPiece> Take(int32_t channel, Direction direction, SampleRange range);

  void Clear();

 private:
  using Key = std::tuple<int32_t, Direction, SampleRange>;
  absl::Mutex mutex_;
  std::map<Key, TensorPiece> pieces_ ABSL_GUARDED_BY(mutex_);
};

// One value for the samples `piece` of a tensor that holds `whole`. INVALID_ARGUMENT if the value
// does not have its samples side by side (TensorMeta::Samples).
absl::StatusOr<at::Tensor> Cut(const at::Tensor& tensor, const TensorMeta& meta, SampleRange whole,
                               SampleRange piece);

// A part of one value.
struct Part {
  SampleRange samples;
  at::Tensor tensor;
};

// The value for `range`, from parts that must tile it. FAILED_PRECONDITION if they do not.
absl::StatusOr<at::Tensor> Join(std::vector<Part> parts, const TensorMeta& meta, SampleRange range);

// The sum of parts, each zero outside its samples: the gradient of a value that several stages
// read. Undefined if there is none. Adds in the order given.
absl::StatusOr<at::Tensor> Sum(const std::vector<Part>& parts, const TensorMeta& meta,
                               SampleRange range);

}  // namespace stagewright
