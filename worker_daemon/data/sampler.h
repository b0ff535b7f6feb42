// Which samples make up each mini-batch: a pure function of seed and step, so that every device
// finds the same ones without talking to the others.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

enum class SampleOrder {
  kShuffled,    // Each epoch is a new permutation.
  kSequential,  // Each epoch is 0, 1, 2, ...
};

// The samples of a training run: epoch after epoch, each of them every sample once, cut into
// mini-batches. One that an epoch does not fill goes on with the next epoch, so none are dropped.
// Not thread-safe: remembers the permutation of one epoch.
class Sampler {
 public:
  // INVALID_ARGUMENT if a mini-batch is larger than the data set, or not positive.
  static absl::StatusOr<Sampler> Create(int64_t samples, int64_t mini_batch, SampleOrder order,
                                        uint64_t seed);

  // The indices of step 0, 1, ...: mini_batch of them. Samples [step * mini_batch, (step + 1) *
  // mini_batch) of all epochs in a row. O(samples) at the start of an epoch.
  std::vector<int64_t> MiniBatch(int64_t step);

 private:
  Sampler(int64_t samples, int64_t mini_batch, SampleOrder order, uint64_t seed)
      : samples_(samples), mini_batch_(mini_batch), order_(order), seed_(seed) {}

  void ShuffleFor(int64_t epoch);

  int64_t samples_;
  int64_t mini_batch_;
  SampleOrder order_;
  uint64_t seed_;
  int64_t epoch_ = -1;  // What permutation_ is for.
  std::vector<int64_t> permutation_;
};

// The mini-batches of one pass over the data, in order. The last one is filled up by repeating its
// last sample; `valid` of its samples count.
struct EvaluationBatch {
  std::vector<int64_t> indices;
  int64_t valid = 0;
};
int64_t EvaluationBatches(int64_t samples, int64_t mini_batch);
EvaluationBatch EvaluationBatchAt(int64_t samples, int64_t mini_batch, int64_t batch);

}  // namespace stagewright
