// Dropout whose mask is a function of (job seed, step, sample, node): it depends neither on the
// partition, nor on micro-batches, replicas or the device, and recomputation repeats it exactly
// (design section 4). The entries of a sample are where the value's layout says; where they belong
// to no sample alone, the mask is one of the pass as a whole, which is never cut.
//
// The numbers are those of a counter-based generator, SplitMix64's outputs: the i-th is a hash of
// key and i, 14 integer operations that every device has. Philox4x32-10 (Salmon et al., "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011), written in the same LibTorch operators, took 1.3
// to 2.2 times as long.
//
// The probability and the scaling are PyTorch's: with probability p an element, or with the
// `feature_` operators a whole channel, is dropped and the others are multiplied by 1 / (1 - p);
// the `alpha_` operators keep mean and variance (Klambauer et al., "Self-Normalizing Neural
// Networks", 2017).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"

namespace stagewright {

// What a mask depends on beside the node.
struct RandomKey {
  uint64_t seed = 0;         // The job's.
  int64_t step = 0;          // Global training step.
  int64_t first_sample = 0;  // Where the first row is in the mini-batch.
};

class KeyedDropout {
 public:
  static bool IsDropout(const Node& node);

  // REQUIRES: IsDropout(node). INVALID_ARGUMENT, naming the node, for arguments that are no
  // dropout's. Without `training` the operator passes its input on.
  static absl::StatusOr<KeyedDropout> Create(const Node& node, NodeId id, bool training);

  const Argument& input() const { return *input_; }

  // Appends the node's outputs for `input`, which holds `samples` samples.
  absl::Status Run(const at::Tensor& input, int64_t samples, const RandomKey& key,
                   std::vector<at::Tensor>& outputs) const;

 private:
  // 1 where an element is kept, 0 where it is dropped, in a shape that broadcasts to the input's.
  at::Tensor Mask(const at::Tensor& input, int64_t samples, const RandomKey& key) const;
  // [keys, row]: which of each key's first numbers are kept.
  at::Tensor Kept(const std::vector<uint64_t>& keys, int64_t row, at::Device device) const;

  const Node* node_ = nullptr;
  NodeId id_;
  const Argument* input_ = nullptr;
  double probability_ = 0;
  bool active_ = true;
  bool per_feature_ = false;
  bool alpha_ = false;
};

// `count` numbers in [0, 1), a function of `key` alone; 53 random bits each.
void KeyedUniforms(uint64_t key, int64_t count, double* out);

// Which of the first `row` numbers of each key are at least `probability`: booleans [keys, row] on
// the device, which draws them itself; the same to the bit on every kind of device.
at::Tensor KeptOnDevice(const std::vector<uint64_t>& keys, int64_t row, double probability,
                        at::Device device);

}  // namespace stagewright
