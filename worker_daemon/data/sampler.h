// Which samples make up each mini-batch: a pure function of seed and step, so that every device
// finds the same ones without talking to the others.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/data/sample_lengths.h"

namespace stagewright {

enum class SampleOrder {
  kShuffled,    // Each epoch is a new permutation.
  kSequential,  // Each epoch is 0, 1, 2, ...
};

// The samples of a training run: epoch after epoch, each of them every sample once, put into
// mini-batches. Samples of one length share a mini-batch: each goes into the one of its length that
// is being filled, and the next step takes the mini-batch that is full first. One that an epoch
// does not fill goes on with the next epoch, so none are dropped. With one length the mini-batches
// are the epochs cut into pieces.
// Not thread-safe: remembers two epochs.
class Sampler {
 public:
  // INVALID_ARGUMENT if a mini-batch is larger than what the data set has of a length, or not
  // positive. Lengths without samples have no mini-batches.
  static absl::StatusOr<Sampler> Create(SampleLengths lengths, int64_t mini_batch,
                                        SampleOrder order, uint64_t seed);
  static absl::StatusOr<Sampler> Create(int64_t samples, int64_t mini_batch, SampleOrder order,
                                        uint64_t seed);

  // The indices of step 0, 1, ...: mini_batch of them. O(samples log runs) at the start of an
  // epoch.
  std::vector<int64_t> MiniBatch(int64_t step);
  // The length of the samples of a step. Complexity as of MiniBatch.
  int32_t LengthAt(int64_t step);

  // Mini-batches that are full after so many epochs; nothing if they cannot be counted.
  static std::optional<int64_t> Steps(const SampleLengths& lengths, int64_t mini_batch,
                                      int64_t epochs);

 private:
  // The k-th mini-batch of a length, from 0 in the first epoch.
  struct Filled {
    int32_t length = 0;
    int64_t k = 0;
  };
  struct Epoch {
    int64_t number = -1;
    std::vector<int64_t> samples;  // Those of each length together, in their order in the epoch.
    std::vector<Filled> filled;    // In the order in which they are full.
  };

  Sampler(SampleLengths lengths, int64_t mini_batch, SampleOrder order, uint64_t seed);

  int64_t StepsBefore(int64_t epoch) const;
  const Epoch& EpochOf(int64_t number);
  void Shuffle(int64_t epoch, std::vector<int64_t>& permutation) const;
  // The epoch that fills the mini-batch of a step, and which it is.
  std::pair<int64_t, Filled> Find(int64_t step);

  SampleLengths lengths_;
  int64_t mini_batch_;
  SampleOrder order_;
  uint64_t seed_;
  std::vector<int64_t> first_;  // By length: its place in Epoch::samples.
  Epoch epochs_[2];             // Even and odd ones.
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
