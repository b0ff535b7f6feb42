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
      StageOption option{static_cast<int32_t>(c),
                         d,
                         false,
                         b / d,
                         static_cast<double>(b),
                         oracle.problem().mini_batch / b,
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

// No t changes what memory allows, and a longer range never needs less. To run forward passes again
// only takes longer where it does not let more operators into memory.
void RelaxedSearch::FitIntoMemory() {
  const int32_t n = ranges_->oracle().size();
  std::vector<int32_t> fits_from(n + 1, 0);
  std::vector<int32_t> before;  // `fits_from` of the option before.
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
      fits_from[end] = begin;
    }
    const bool also_kept = option.recompute && o > 0 && !options_[o - 1].recompute;
    if (also_kept && fits_from == before) continue;
    useful_.push_back(static_cast<int32_t>(o));
    fits_from_.insert(fits_from_.end(), fits_from.begin(), fits_from.end());
    before = fits_from;
  }
}

// The longest stages of each useful option, which do not depend on each other. More time never
// shortens one, so what is known of other times leaves little to ask.
std::vector<int32_t> RelaxedSearch::FindLongest(double t) const {
  const int32_t n = ranges_->oracle().size();
  const auto mini_batch = static_cast<double>(ranges_->oracle().problem().mini_batch);
  const Bytes* gradients = ranges_->LeastGradientsBefore();
  const Prepared* less = nullptr;
  const Prepared* more = nullptr;
  for (const Prepared& kept : kept_) {
    if (kept.t >= 0 && kept.t < t && (less == nullptr || less->t < kept.t)) less = &kept;
    if (kept.t > t && (more == nullptr || more->t > kept.t)) more = &kept;
  }
  std::vector<int32_t> longest(useful_.size() * (n + 1));
  for (size_t u = 0; u < useful_.size(); ++u) {
    const StageOption& option = options_[useful_[u]];
    const double* time = option.costs->TimeBefore();
    const double* forward = option.costs->ForwardBefore();
    const NetworkFacts::Sum sum =
        ranges_->network().sums[std::bit_width(static_cast<uint32_t>(option.replicas)) - 1];
    const double samples = option.samples;
    const bool recompute = option.recompute;
    const bool sums = option.replicas > 1;
    // False stays false for longer ranges.
    const auto may_meet = [=](int32_t begin, int32_t end) {
      double compute = time[end] - time[begin];
      if (recompute) compute += forward[end] - forward[begin];
      compute /= samples;
      if (compute > t) return false;
      if (!sums || gradients[end] == gradients[begin]) return true;
      const auto bytes = static_cast<double>(gradients[end] - gradients[begin]);
      return compute + (sum.latency + sum.per_byte * bytes) / mini_batch <= t;
    };
    const size_t row = u * (n + 1);
    const int32_t* least = more != nullptr ? more->longest.data() + row : fits_from_.data() + row;
    const int32_t* most = less != nullptr ? less->longest.data() + row : nullptr;
    for (int32_t begin = 0, end = 1; end <= n; ++end) {
      begin = std::max(begin, least[end]);
      const int32_t known = most != nullptr ? most[end] : end;
      while (begin < known && !may_meet(begin, end)) ++begin;
      longest[row + end] = begin;
    }
  }
  return longest;
}

int32_t RelaxedSearch::Least(double t) {
  const int32_t n = ranges_->oracle().size();
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (kept_[i].t != t) continue;
    current_ = i;
    return kept_[i].before[n];
  }
  if (fits_from_.empty()) FitIntoMemory();
  std::vector<int32_t> longest = FindLongest(t);
  if (kept_.size() < kMostKept) {
    kept_.emplace_back();
    oldest_ = kept_.size() - 1;
  }
  current_ = std::exchange(oldest_, (oldest_ + 1) % kMostKept);
  Prepared& made = kept_[current_];
  made.t = t;
  made.longest = std::move(longest);
  made.before.assign(n + 1, 0);
  made.reach.assign(n + 1, 0);
  for (int32_t end = 1; end <= n; ++end) {
    int32_t before = kNone;
    int32_t reach = end;
    const int32_t* begin = made.longest.data() + end;
    for (int32_t o : useful_) {
      if (*begin < end) {
        reach = std::min(reach, *begin);
        before = std::min(before, made.before[*begin] + options_[o].replicas);
      }
      begin += n + 1;
    }
    made.before[end] = before;
    made.reach[end] = reach;
  }
  return made.before[n];
}

std::vector<int32_t> RelaxedSearch::After() const {
  const int32_t n = ranges_->oracle().size();
  const std::vector<int32_t>& longest = prepared().longest;
  std::vector<int32_t> after(n + 1, kNone);
  after[n] = 0;
  std::vector<int32_t> ends(useful_.size(), n);  // Where the longest stage from `begin` on ends.
  for (int32_t begin = n - 1; begin >= 0; --begin) {
    for (size_t u = 0; u < useful_.size(); ++u) {
      int32_t& end = ends[u];
      while (end > begin && longest[u * (n + 1) + end] > begin) --end;
      if (end == begin) continue;
      after[begin] = std::min(after[begin], after[end] + options_[useful_[u]].replicas);
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
