#include "worker_daemon/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// SplitMix64 (Steele, Lea and Flood, 2014). The standard library's distributions are not the same
// everywhere, and every device must find the same permutation.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t x = state_;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  // Uniform in [0, bound), without bias.
  uint64_t Below(uint64_t bound) {
    const uint64_t rest = -bound % bound;  // 2^64 mod bound.
    for (;;) {
      const uint64_t value = Next();
      if (value >= rest) return value % bound;
    }
  }

 private:
  uint64_t state_;
};

}  // namespace

absl::StatusOr<Sampler> Sampler::Create(int64_t samples, int64_t mini_batch, SampleOrder order,
                                        uint64_t seed) {
  return Create(SampleLengths(samples), mini_batch, order, seed);
}

absl::StatusOr<Sampler> Sampler::Create(SampleLengths lengths, int64_t mini_batch,
                                        SampleOrder order, uint64_t seed) {
  if (mini_batch <= 0) return absl::InvalidArgumentError("the mini-batch is empty");
  for (int32_t l = 0; l < lengths.lengths(); ++l) {
    const int64_t samples = lengths.SamplesOf(l);
    if (mini_batch <= samples) continue;
    if (lengths.lengths() == 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a mini-batch of ", mini_batch, " is larger than the data set of ", samples, " samples"));
    }
    if (samples == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a mini-batch of ", mini_batch, " is larger than the ", samples,
        " samples of the same length as sample ", lengths.IndexOf(l, 0),
        ", and a mini-batch has samples of one length: add samples of this length, pad them to "
        "another, or take smaller mini-batches"));
  }
  return Sampler(std::move(lengths), mini_batch, order, seed);
}

Sampler::Sampler(SampleLengths lengths, int64_t mini_batch, SampleOrder order, uint64_t seed)
    : lengths_(std::move(lengths)), mini_batch_(mini_batch), order_(order), seed_(seed) {
  int64_t first = 0;
  for (int32_t l = 0; l < lengths_.lengths(); ++l) {
    first_.push_back(first);
    first += lengths_.SamplesOf(l);
  }
}

std::optional<int64_t> Sampler::Steps(const SampleLengths& lengths, int64_t mini_batch,
                                      int64_t epochs) {
  int64_t all = 0;
  if (__builtin_mul_overflow(lengths.samples(), epochs, &all) || all > kMostTrainedSamples)
    return std::nullopt;
  int64_t steps = 0;
  for (int32_t l = 0; l < lengths.lengths(); ++l)
    steps += lengths.SamplesOf(l) * epochs / mini_batch;
  return steps;
}

int64_t Sampler::StepsBefore(int64_t epoch) const {
  int64_t steps = 0;
  for (int32_t l = 0; l < lengths_.lengths(); ++l)
    steps += lengths_.SamplesOf(l) * epoch / mini_batch_;
  return steps;
}

std::pair<int64_t, Sampler::Filled> Sampler::Find(int64_t step) {
  // Rounding down leaves the number of full mini-batches below this by less than one per length.
  int64_t epoch = step * mini_batch_ / lengths_.samples();
  while (StepsBefore(epoch + 1) <= step) ++epoch;
  const int64_t nth = step - StepsBefore(epoch);
  return {epoch, EpochOf(epoch).filled[static_cast<size_t>(nth)]};
}

int32_t Sampler::LengthAt(int64_t step) {
  return lengths_.lengths() == 1 ? 0 : Find(step).second.length;
}

std::vector<int64_t> Sampler::MiniBatch(int64_t step) {
  const Filled filled = Find(step).second;
  const int64_t samples = lengths_.SamplesOf(filled.length);
  std::vector<int64_t> indices;
  indices.reserve(static_cast<size_t>(mini_batch_));
  for (int64_t at = filled.k * mini_batch_, end = at + mini_batch_; at < end;) {
    const int64_t first = at % samples;
    const int64_t count = std::min(end - at, samples - first);
    const std::vector<int64_t>& all = EpochOf(at / samples).samples;
    const auto begin = all.begin() + first_[filled.length] + first;
    indices.insert(indices.end(), begin, begin + count);
    at += count;
  }
  return indices;
}

const Sampler::Epoch& Sampler::EpochOf(int64_t number) {
  Epoch& epoch = epochs_[number % 2];
  if (epoch.number == number) return epoch;
  std::vector<int64_t> permutation;
  Shuffle(number, permutation);
  epoch.number = number;
  epoch.samples.resize(permutation.size());
  epoch.filled.clear();
  std::vector<int64_t> seen(first_.size(), 0);
  for (int64_t index : permutation) {
    const int32_t l = lengths_.lengths() == 1 ? 0 : lengths_.LengthOf(index);
    epoch.samples[static_cast<size_t>(first_[l] + seen[l]++)] = index;
    const int64_t so_far = number * lengths_.SamplesOf(l) + seen[l];
    if (so_far % mini_batch_ == 0) epoch.filled.push_back({l, so_far / mini_batch_ - 1});
  }
  return epoch;
}

void Sampler::Shuffle(int64_t epoch, std::vector<int64_t>& permutation) const {
  permutation.resize(static_cast<size_t>(lengths_.samples()));
  std::iota(permutation.begin(), permutation.end(), 0);
  if (order_ == SampleOrder::kSequential) return;
  Random random(Random(seed_ + static_cast<uint64_t>(epoch)).Next() ^ seed_);
  for (size_t i = permutation.size(); i > 1; --i)
    std::swap(permutation[i - 1], permutation[random.Below(i)]);
}

int64_t EvaluationBatches(int64_t samples, int64_t mini_batch) {
  return (samples + mini_batch - 1) / mini_batch;
}

EvaluationBatch EvaluationBatchAt(int64_t samples, int64_t mini_batch, int64_t batch) {
  EvaluationBatch result;
  const int64_t first = batch * mini_batch;
  result.valid = std::min(mini_batch, samples - first);
  for (int64_t i = 0; i < mini_batch; ++i) {
    result.indices.push_back(std::min(first + i, samples - 1));
  }
  return result;
}

}  // namespace stagewright
