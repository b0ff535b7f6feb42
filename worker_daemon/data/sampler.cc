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
  if (mini_batch <= 0) return absl::InvalidArgumentError("the mini-batch is empty");
  if (mini_batch > samples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a mini-batch of ", mini_batch, " is larger than the data set of ", samples, " samples"));
  }
  return Sampler(samples, mini_batch, order, seed);
}

std::vector<int64_t> Sampler::MiniBatch(int64_t step) {
  std::vector<int64_t> indices;
  indices.reserve(static_cast<size_t>(mini_batch_));
  // A mini-batch that an epoch does not fill goes on with the next one.
  for (int64_t at = step * mini_batch_, end = at + mini_batch_; at < end;) {
    const int64_t first = at % samples_;
    const int64_t count = std::min(end - at, samples_ - first);
    ShuffleFor(at / samples_);
    indices.insert(indices.end(), permutation_.begin() + first,
                   permutation_.begin() + first + count);
    at += count;
  }
  return indices;
}

void Sampler::ShuffleFor(int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  permutation_.resize(static_cast<size_t>(samples_));
  std::iota(permutation_.begin(), permutation_.end(), 0);
  if (order_ == SampleOrder::kSequential) return;
  Random random(Random(seed_ + static_cast<uint64_t>(epoch)).Next() ^ seed_);
  for (size_t i = permutation_.size(); i > 1; --i)
    std::swap(permutation_[i - 1], permutation_[random.Below(i)]);
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
