#include "planner_service/planners/graphpipe/recurrence/relaxed_search.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace stagewright {

RelaxedSearch::RelaxedSearch(const StageRanges& ranges, std::vector<StageConfig> configs,
                             bool replicas, RecomputePolicy recompute, Bytes memory)
    : ranges_(&ranges), configs_(std::move(configs)), memory_(memory) {
  MakeOptions(replicas, recompute);
  AddUpWork();
}

void RelaxedSearch::MakeOptions(bool replicas, RecomputePolicy recompute) {
  const StageOracle& oracle = ranges_->oracle();
  const int32_t devices = oracle.problem().cluster->size();
  for (size_t c = 0; c < configs_.size(); ++c) {
    const int64_t b = configs_[c].micro_batch;
    for (int32_t d = 1; d <= devices && b % d == 0; d *= 2) {
      StageOption option{static_cast<int32_t>(c), d, false, b / d, static_cast<double>(b),
                         &oracle.Share(b / d)};
      if (recompute != RecomputePolicy::kAlways) options_.push_back(option);
      option.recompute = true;
      if (recompute != RecomputePolicy::kNever) options_.push_back(option);
      if (!replicas || b / d / 2 < oracle.problem().graph->samples().least) break;
    }
    option_ends_.push_back(static_cast<int32_t>(options_.size()));
  }
}

void RelaxedSearch::AddUpWork() {
  for (int32_t p = 0; p < ranges_->oracle().size(); ++p) {
    double work = std::numeric_limits<double>::infinity();
    double fastest = work;
    for (const StageOption& option : options_) {
      const double compute = option.Compute(p, p + 1);
      work = std::min(work, compute * option.replicas);
      fastest = std::min(fastest, compute);
    }
    work_ += work;
    largest_operator_ = std::max(largest_operator_, fastest);
  }
}

double RelaxedSearch::LowerBound(int32_t devices) const {
  return std::max(work_ / devices, largest_operator_);
}

// No t changes what memory allows, and a longer range never needs less.
void RelaxedSearch::FitIntoMemory() {
  const int32_t n = ranges_->oracle().size();
  fits_from_.assign(options_.size() * (n + 1), 0);
  for (size_t o = 0; o < options_.size(); ++o) {
    const StageOption& option = options_[o];
    const int64_t shares = option.recompute ? 1 : configs_[option.config].k;
    int32_t begin = 0;
    for (int32_t end = 1; end <= n; ++end) {
      while (begin < end && ranges_->LeastResident(begin, end) +
                                    shares * option.costs->Saved(begin, end) +
                                    option.costs->Workspace(begin, end) >
                                memory_) {
        ++begin;
      }
      fits_from_[o * (n + 1) + end] = begin;
    }
  }
}

// Whether [begin, end) may meet t with this option: false stays false for longer ranges.
bool RelaxedSearch::MayMeet(size_t o, int32_t begin, int32_t end, double t) const {
  if (begin < fits_from_[o * (ranges_->oracle().size() + 1) + end]) return false;
  const StageOption& option = options_[o];
  const double compute = option.Compute(begin, end);
  if (compute > t) return false;
  if (option.replicas == 1) return true;
  const Bytes gradients = ranges_->LeastGradients(begin, end);
  if (gradients == 0) return true;
  const NetworkFacts::Sum& sum =
      ranges_->network().sums[std::bit_width(static_cast<uint32_t>(option.replicas)) - 1];
  const auto mini_batch = static_cast<double>(ranges_->oracle().problem().mini_batch);
  return compute + (sum.latency + sum.per_byte * static_cast<double>(gradients)) / mini_batch <= t;
}

int32_t RelaxedSearch::Least(double t) {
  const int32_t n = ranges_->oracle().size();
  if (prepared_ == t) return before_[n];
  if (fits_from_.empty()) FitIntoMemory();
  before_.assign(n + 1, 0);
  reach_.assign(n + 1, 0);
  pointers_.assign(options_.size(), 0);
  for (int32_t end = 1; end <= n; ++end) {
    before_[end] = kNone;
    reach_[end] = end;
    for (size_t o = 0; o < options_.size(); ++o) {
      int32_t& begin = pointers_[o];
      while (begin < end && !MayMeet(o, begin, end, t)) ++begin;
      if (begin == end) continue;
      reach_[end] = std::min(reach_[end], begin);
      before_[end] = std::min(before_[end], before_[begin] + options_[o].replicas);
    }
  }
  prepared_ = t;
  return before_[n];
}

std::vector<int32_t> RelaxedSearch::After() {
  const int32_t n = ranges_->oracle().size();
  std::vector<int32_t> after(n + 1, kNone);
  after[n] = 0;
  pointers_.assign(options_.size(), n);
  for (int32_t begin = n - 1; begin >= 0; --begin) {
    for (size_t o = 0; o < options_.size(); ++o) {
      int32_t& end = pointers_[o];
      while (end > begin && !MayMeet(o, begin, end, prepared_)) --end;
      if (end == begin) continue;
      after[begin] = std::min(after[begin], after[end] + options_[o].replicas);
    }
  }
  return after;
}

// Gallops upwards from the bound first.
double RelaxedSearch::LeastTime(int32_t devices, double most, double precision,
                                const SearchContext& context) {
  const auto known = least_time_.find(devices);
  if (known != least_time_.end()) return known->second;
  double low = LowerBound(devices);
  double high = low;
  double step = 0.02;
  while (Least(high * kTimeSlack) > devices) {
    if (high >= most || context.Expired(WorkOfLeast()))
      return std::numeric_limits<double>::infinity();
    low = high;
    high = std::min(low * (1 + step), most);
    step *= 3;
  }
  while (high > low * (1 + precision) && !context.Expired(WorkOfLeast())) {
    const double probe = (low + high) / 2;
    (Least(probe * kTimeSlack) > devices ? low : high) = probe;
  }
  least_time_[devices] = high;
  return high;
}

}  // namespace stagewright
