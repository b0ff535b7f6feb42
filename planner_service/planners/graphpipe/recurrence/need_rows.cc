#include "planner_service/planners/graphpipe/recurrence/need_rows.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/strategy.h"

namespace stagewright {
namespace {

constexpr size_t kKnownPairs = 1 << 12;

}  // namespace

NeedRows::NeedRows(std::vector<StageConfig> configs, int64_t mini_batch)
    : configs_(std::move(configs)),
      mini_batch_(mini_batch),
      single_(configs_.size() == 1),
      names_(0, Hash{this}, Equal{this}) {}

void NeedRows::Reset(int64_t most) {
  if (single_) return;
  most_ = most;
  values_.clear();
  sums_.clear();
  names_.clear();
  known_.assign(kKnownPairs, {});
  of_.assign(configs_.size(), {});
  for (const StageConfig& config : configs_) values_.push_back(Round(config, 0));
  Name();
}

size_t NeedRows::Hash::operator()(Row row) const {
  const size_t width = rows->configs_.size();
  return absl::HashOf(absl::MakeConstSpan(rows->values_.data() + row * width, width));
}

bool NeedRows::Equal::operator()(Row a, Row b) const {
  const size_t width = rows->configs_.size();
  const int64_t* values = rows->values_.data();
  return std::equal(values + a * width, values + (a + 1) * width, values + b * width);
}

int64_t NeedRows::Round(const StageConfig& config, int64_t need) const {
  const int64_t b = config.micro_batch;
  const int64_t micro_batches = std::max<int64_t>(config.k, (need + b - 1) / b);
  const int64_t in_flight = std::min(micro_batches * b, mini_batch_);
  return in_flight > most_ ? mini_batch_ + 1 : in_flight;
}

NeedRows::Row NeedRows::Name() {
  const size_t width = configs_.size();
  const auto row = static_cast<Row>(sums_.size());
  const auto [it, added] = names_.insert(row);
  if (!added) {
    values_.resize(values_.size() - width);
    return *it;
  }
  int64_t sum = 0;
  for (size_t x = 0; x < width; ++x) sum += values_[row * width + x];
  sums_.push_back(sum);
  return row;
}

NeedRows::Row NeedRows::Of(size_t config, int64_t in_flight) {
  const StageConfig& asks = configs_[config];
  if (single_) {
    if (in_flight != asked_) {
      asked_ = in_flight;
      answer_ = ComputeInFlight(asks.k, asks.micro_batch, asks.k, asks.micro_batch, in_flight);
    }
    return answer_;
  }
  std::vector<Row>& of = of_[config];
  const auto index = static_cast<size_t>(in_flight / asks.micro_batch);
  if (index >= of.size()) of.resize(index + 1, -1);
  if (of[index] < 0) {
    for (const StageConfig& x : configs_) {
      values_.push_back(
          Round(x, ComputeInFlight(x.k, x.micro_batch, asks.k, asks.micro_batch, in_flight)));
    }
    of[index] = Name();
  }
  return of[index];
}

NeedRows::Row NeedRows::LargerOf(Row a, Row b) {
  if (a > b) std::swap(a, b);
  const auto mixed = static_cast<uint64_t>(a) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(b);
  Known& known = known_[(mixed * 0xBF58476D1CE4E5B9u) >> 52];
  if (known.a == a && known.b == b) return known.larger;
  const size_t width = configs_.size();
  for (size_t x = 0; x < width; ++x) {
    values_.push_back(std::max(values_[a * width + x], values_[b * width + x]));
  }
  known = {a, b, Name()};
  return known.larger;
}

bool NeedRows::AtMostOf(Row a, Row b) const {
  const size_t width = configs_.size();
  const int64_t* left = values_.data() + a * width;
  const int64_t* right = values_.data() + b * width;
  for (size_t x = 0; x < width; ++x) {
    if (left[x] > right[x]) return false;
  }
  return true;
}

}  // namespace stagewright
