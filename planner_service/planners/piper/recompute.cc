#include "planner_service/planners/piper/recompute.h"

#include <algorithm>
#include <numeric>

namespace stagewright {
namespace {

// Depth first: an item is taken, then left out.
class KnapsackSearch {
 public:
  KnapsackSearch(const std::vector<RecomputeItem>& items, double needed, int64_t most_steps)
      : needed_(needed), steps_(most_steps), order_(items.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
      return items[a].bytes * items[b].time > items[b].bytes * items[a].time;
    });
    for (int32_t i : order_) items_.push_back(items[i]);
    time_.assign(1, 0);
    bytes_.assign(1, 0);
    for (const RecomputeItem& item : items_) {
      time_.push_back(time_.back() + item.time);
      bytes_.push_back(bytes_.back() + item.bytes);
    }
    taken_.resize(items_.size());
  }

  RecomputeAnswer Run() {
    Greedy();
    Branch(0, 0, 0);
    RecomputeAnswer answer{best_, std::vector<bool>(items_.size()), steps_ > 0};
    for (size_t i = 0; i < items_.size(); ++i) answer.chosen[order_[i]] = best_taken_[i];
    return answer;
  }

 private:
  // In order until it is enough, then without what turned out to be superfluous.
  void Greedy() {
    std::vector<bool> taken(items_.size());
    double time = 0;
    double bytes = 0;
    size_t i = 0;
    for (; i < items_.size() && bytes < needed_; ++i) {
      taken[i] = true;
      time += items_[i].time;
      bytes += items_[i].bytes;
    }
    while (i-- > 0) {
      if (bytes - items_[i].bytes < needed_) continue;
      taken[i] = false;
      time -= items_[i].time;
      bytes -= items_[i].bytes;
    }
    best_ = time;
    best_taken_ = std::move(taken);
  }

  // The least time of items from `i` on, parts of them allowed, that give `missing` bytes.
  double Relaxed(size_t i, double missing) const {
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(i);
    const auto after = std::lower_bound(begin, bytes_.end(), bytes_[i] + missing);
    if (after == bytes_.end()) return -1;
    const auto last = static_cast<size_t>(after - bytes_.begin());
    if (last == i) return 0;
    const double part = missing - (bytes_[last - 1] - bytes_[i]);
    return time_[last - 1] - time_[i] + items_[last - 1].time * part / items_[last - 1].bytes;
  }

  void Branch(size_t i, double time, double bytes) {
    if (bytes >= needed_) {
      if (time < best_) {
        best_ = time;
        best_taken_ = taken_;
        std::fill(best_taken_.begin() + static_cast<std::ptrdiff_t>(i), best_taken_.end(), false);
      }
      return;
    }
    if (--steps_ <= 0) return;
    const double rest = Relaxed(i, needed_ - bytes);
    if (rest < 0 || time + rest >= best_ * (1 - 1e-9)) return;
    taken_[i] = true;
    Branch(i + 1, time + items_[i].time, bytes + items_[i].bytes);
    taken_[i] = false;
    Branch(i + 1, time, bytes);
  }

  const double needed_;
  int64_t steps_;
  std::vector<int32_t> order_;
  std::vector<RecomputeItem> items_;  // By falling bytes per time.
  std::vector<double> time_;          // Sums of the first items.
  std::vector<double> bytes_;
  std::vector<bool> taken_;
  std::vector<bool> best_taken_;
  double best_ = 0;
};

}  // namespace

RecomputeAnswer ChooseRecompute(const std::vector<RecomputeItem>& items, double needed,
                                int64_t most_steps) {
  return KnapsackSearch(items, needed, std::max<int64_t>(most_steps, 2)).Run();
}

}  // namespace stagewright
