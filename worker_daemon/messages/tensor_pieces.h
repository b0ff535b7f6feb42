// Values cut into pieces of their samples and put together again.
//
// Where neighbouring stages differ in micro-batch size or replicas, a micro-batch is put together
// from several pieces, and one micro-batch is cut into several (design section 3). All samples here
// are of one step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/sample_range.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/program.h"

namespace stagewright {

// Which way tensors go along a channel.
enum class Direction : uint8_t { kActivation, kGradient };

// REQUIRES: the kind of a transfer.
Direction DirectionOf(ActionKind kind);

// What a channel carries, in message order.
const std::vector<ValueRef>& ValuesOf(const Channel& channel, Direction direction);

// The place of a value in a sorted list; nothing if it is not there. O(log n).
std::optional<size_t> IndexOf(const std::vector<ValueRef>& sorted, ValueRef value);

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

// What a pass of a stage made for others.
struct PassResult {
  const std::vector<ValueRef>* values = nullptr;  // Sorted.
  std::vector<at::Tensor> tensors;                // Parallel to `values`.
  SampleRange samples;                            // What all tensors hold.
};

// What of a result goes along a channel, cut to the samples `piece`. Errors of Cut, naming the
// node; INVALID_ARGUMENT if the pass does not make what the channel carries.
absl::StatusOr<std::vector<at::Tensor>> CutForChannel(const PassResult& result, const Graph& graph,
                                                      const Program& program, int32_t channel,
                                                      Direction direction, SampleRange piece);

}  // namespace stagewright
