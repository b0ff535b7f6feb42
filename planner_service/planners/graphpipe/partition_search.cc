#include "planner_service/planners/graphpipe/partition_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/check.h"

namespace stagewright {
namespace {

// Between two looks at the clock.
constexpr int64_t kPollEvery = 4096;

}  // namespace

struct PartitionSearch::Step {
  int32_t end;
  const StageRanges::Range* range;
  const int32_t* parents;  // StageRanges::Parents
};

PartitionSearch::PartitionSearch(StageRanges& ranges, std::vector<StageConfig> configs,
                                 PartitionOptions options, const SearchContext& context)
    : PartitionSearch(ranges,
                      std::make_shared<RelaxedSearch>(
                          ranges, std::move(configs), options.replicas, options.recompute,
                          static_cast<Bytes>(options.memory_share *
                                             static_cast<double>(ranges.oracle().budget()))),
                      std::move(options), context) {}

PartitionSearch::PartitionSearch(const PartitionSearch& other, Messages messages)
    : PartitionSearch(*other.ranges_, other.relaxed_, other.options_, *other.context_) {
  options_.messages = messages;
  networks_.clear();
  DescribeNetwork(ranges_->network());
}

PartitionSearch::PartitionSearch(StageRanges& ranges, std::shared_ptr<RelaxedSearch> relaxed,
                                 PartitionOptions options, const SearchContext& context)
    : ranges_(&ranges),
      oracle_(&ranges.oracle()),
      frontier_(&ranges.frontier()),
      relaxed_(std::move(relaxed)),
      configs_(relaxed_->configs()),
      choices_(relaxed_->options()),
      choice_end_(relaxed_->option_ends()),
      options_(std::move(options)),
      context_(&context),
      mini_batch_(oracle_->problem().mini_batch),
      memory_(relaxed_->memory()),
      rows_(configs_, mini_batch_) {
  DescribeNetwork(ranges.network());
}

void PartitionSearch::DescribeNetwork(const NetworkFacts& facts) {
  for (size_t i = 0; i < facts.sums.size(); ++i) {
    const int32_t replicas = 1 << i;
    Network network;
    network.sum_latency = facts.sums[i].latency;
    network.sum_per_byte = facts.sums[i].per_byte;
    if (facts.fastest > 0) {
      const int32_t packed = (replicas + facts.node_size - 1) / facts.node_size;
      const int32_t ports = std::min(replicas, facts.nodes);
      network.network_per_byte = 1 / (facts.slowest * std::max(ports, packed));
      network.message_per_byte = options_.messages == Messages::kInside
                                     ? 1 / (facts.fastest * replicas)
                                     : network.network_per_byte;
      if (options_.messages == Messages::kExposed) {
        network.exposed_per_byte = 1 / (facts.slowest * packed);
      }
    }
    networks_.push_back(network);
  }
}

double PartitionSearch::Tps(const StageOracle::Extent& extent, double compute,
                            int32_t replicas) const {
  const Network& network = networks_[std::bit_width(static_cast<uint32_t>(replicas)) - 1];
  double sum = 0;
  if (replicas > 1 && extent.gradients > 0) {
    sum = (network.sum_latency + network.sum_per_byte * static_cast<double>(extent.gradients)) /
          static_cast<double>(mini_batch_);
  }
  const double message = std::max(extent.in_per_sample, extent.out_per_sample);
  return std::max(compute + sum + message * network.exposed_per_byte,
                  message * network.message_per_byte);
}

double PartitionSearch::StageTps(int32_t begin, int32_t end, int32_t replicas,
                                 const StageConfig& config, bool recompute) const {
  const ShareCosts& share = oracle_->Share(config.micro_batch / replicas);
  const double time = share.Time(begin, end) + (recompute ? share.Forward(begin, end) : 0);
  return Tps(oracle_->At(begin, end), time / static_cast<double>(config.micro_batch), replicas);
}

Bytes PartitionSearch::Memory(const StageOption& option, const StageRanges::Range& range,
                              int32_t end, int64_t in_flight) const {
  const StageOracle::Flow flow{option.share, in_flight,
                               mini_batch_ / configs_[option.config].micro_batch, option.recompute};
  return StageOracle::Memory(range.extent, option.costs->Saved(range.begin, end),
                             option.costs->Workspace(range.begin, end), flow);
}

// The second pass, at t_. False if the context expired.
bool PartitionSearch::Bound(int32_t devices) {
  if (configs_.size() == 1) {
    before_ = relaxed_->before();
    messages_matter_in_bound_ = false;
    return true;
  }
  if (bounded_ == t_ && devices <= bounded_devices_) return true;
  bounded_devices_ = 0;
  messages_matter_ = false;
  const std::vector<int32_t> least_after = relaxed_->After();
  const int32_t n = oracle_->size();
  const auto width = static_cast<int32_t>(configs_.size());
  before_.assign(n + 1, RelaxedSearch::kNone);
  before_[0] = 0;
  row_begin_.assign(n + 1, 0);
  first_options_.clear();
  std::vector<int32_t> fastest(width);
  for (int32_t end = 1; end <= n; ++end) {
    row_begin_[end] = first_options_.size();
    // No answer is cut here.
    if (relaxed_->LeastBefore(end) + least_after[end] > devices) continue;
    fastest[0] = 0;
    for (int32_t c = 1; c < width; ++c) fastest[c] = choice_end_[c - 1];
    for (size_t r = 0;; ++r) {
      const StageRanges::Range* range = ranges_->At(end, r);
      if (range == nullptr || range->begin < relaxed_->Reach(end)) break;
      if (!Poll()) return false;
      const size_t at = first_options_.size();
      first_options_.resize(at + width, -1);
      const int32_t before = before_[range->begin];
      const int32_t most_replicas = devices - before - least_after[end];
      if (most_replicas < 1) continue;
      if (!Allowed(range->begin, end)) continue;
      for (int32_t c = 0; c < width; ++c) {
        const int32_t o = FirstOption(*range, end, c, most_replicas, fastest[c]);
        if (o < 0) continue;
        first_options_[at + c] = static_cast<int16_t>(o);
        before_[end] = std::min(before_[end], before + choices_[o].replicas);
      }
    }
  }
  bounded_ = t_;
  bounded_devices_ = devices;
  messages_matter_in_bound_ = messages_matter_;
  return true;
}

// Counts a state; false if the context expired.
bool PartitionSearch::Poll() {
  if (++states_ <= next_poll_) return true;
  next_poll_ = states_ + kPollEvery;
  return !context_->Expired();
}

// Whether a range meets t_ with this option.
bool PartitionSearch::Meets(const StageOption& option, const StageRanges::Range& range,
                            int32_t end) {
  const double compute = option.Compute(range.begin, end);
  if (compute > t_) return false;
  if (Tps(range.extent, compute, option.replicas) > t_) return false;
  const Network& network = networks_[std::bit_width(static_cast<uint32_t>(option.replicas)) - 1];
  const double message = std::max(range.extent.in_per_sample, range.extent.out_per_sample);
  if (message * network.network_per_byte > t_) messages_matter_ = true;
  return true;
}

// The first option of a config, of those with at most so many replicas, that meets t_ and may fit
// into memory; -1: none. `fastest` is the first whose compute alone may meet t, and only moves on
// while the range grows.
int32_t PartitionSearch::FirstOption(const StageRanges::Range& range, int32_t end, int32_t config,
                                     int32_t most_replicas, int32_t& fastest) {
  const int32_t last = choice_end_[config];
  while (fastest < last && choices_[fastest].Compute(range.begin, end) > t_) ++fastest;
  for (int32_t o = fastest; o < last; ++o) {
    const StageOption& option = choices_[o];
    if (option.replicas > most_replicas) return -1;
    if (!Meets(option, range, end)) continue;
    if (Memory(option, range, end, configs_[config].k) <= memory_) return o;
  }
  return -1;
}

// The needs at the front of the range, into scratch_: what its members'
// predecessors have to keep in flight for it, or for what they see beyond it.
void PartitionSearch::DeriveNeeds(const Step& step, const NeedRows::Row* needs_behind,
                                  int32_t config, int64_t in_flight) {
  const auto& classes = frontier_->At(step.range->begin);
  scratch_.resize(classes.size());
  if (classes.empty()) return;
  const NeedRows::Row asked = rows_.Of(config, in_flight);
  for (size_t c = 0; c < classes.size(); ++c) {
    const int32_t parent = step.parents[c];
    const bool reads = classes[c].first_successor < step.end;
    const NeedRows::Row behind = parent < 0 ? NeedRows::kNothing : needs_behind[parent];
    scratch_[c] = reads ? rows_.Larger(behind, asked) : behind;
  }
}

// Puts the stage of `step` before all partitions behind it, with the options
// from `first` on.
void PartitionSearch::Extend(const Step& step, int32_t first, const PartitionLimits& limits) {
  const StageRanges::Range& range = *step.range;
  const int32_t c = choices_[first].config;
  const StageConfig& config = configs_[c];
  const Front& rest = fronts_[step.end];
  const auto& classes_after = frontier_->At(step.end);
  const int32_t most = limits.devices - before_[range.begin];
  states_ += static_cast<int64_t>(rest.points.size());
  for (size_t i = 0; i < rest.points.size(); ++i) {
    const Point& after = rest.points[i];
    if (after.devices + choices_[first].replicas > most) continue;
    if (options_.max_stages > 0 &&
        after.stages + 1 + (range.begin > 0 ? 1 : 0) > options_.max_stages) {
      continue;
    }
    const NeedRows::Row* needs = rest.needs.data() + i * classes_after.size();
    int64_t in_flight = config.k * config.micro_batch;
    for (size_t k = 0; k < classes_after.size(); ++k) {
      if (classes_after[k].last_member >= range.begin) {
        in_flight = std::max(in_flight, rows_.At(needs[k], c));
      }
    }
    const int64_t shares = (in_flight + config.micro_batch - 1) / config.micro_batch;
    in_flight = std::min(shares * config.micro_batch, mini_batch_);
    if (in_flight > limits.in_flight) continue;
    Bytes peak = after.peak;
    int32_t o = first;
    for (; o < choice_end_[c]; ++o) {
      const StageOption& option = choices_[o];
      if (after.devices + option.replicas > most) o = choice_end_[c];
      if (o == choice_end_[c]) break;
      const Bytes memory = Memory(option, range, step.end, in_flight / config.micro_batch);
      if (memory > memory_) continue;
      peak = std::max(after.peak, memory);
      if (o == first) break;
      if (Meets(option, range, step.end)) break;
    }
    if (o >= choice_end_[c]) continue;

    DeriveNeeds(step, needs, c, in_flight);
    Insert(
        fronts_[range.begin],
        {after.devices + choices_[o].replicas, after.stages + 1, step.end, static_cast<int32_t>(i),
         o, in_flight, after.traffic + range.extent.in_per_sample, peak},
        scratch_);
  }
}

// -1: a dominates b; 1: b dominates a (equals go to less traffic, then less
// memory); 0: neither.
int PartitionSearch::Compare(const Point& a, const NeedRows::Row* a_needs, const Point& b,
                             const NeedRows::Row* b_needs, size_t width) const {
  bool a_wins = a.devices <= b.devices;
  bool b_wins = b.devices <= a.devices;
  if (options_.exact_stages && a.stages != b.stages) return 0;
  if (options_.max_stages > 0) {
    a_wins = a_wins && a.stages <= b.stages;
    b_wins = b_wins && b.stages <= a.stages;
  }
  for (size_t x = 0; x < width && (a_wins || b_wins); ++x) {
    a_wins = a_wins && rows_.AtMost(a_needs[x], b_needs[x]);
    b_wins = b_wins && rows_.AtMost(b_needs[x], a_needs[x]);
  }
  if (a_wins && b_wins) {
    if (a.traffic != b.traffic) return a.traffic < b.traffic ? -1 : 1;
    return a.peak <= b.peak ? -1 : 1;
  }
  return a_wins ? -1 : b_wins ? 1 : 0;
}

void PartitionSearch::Insert(Front& front, const Point& point,
                             const std::vector<NeedRows::Row>& needs) {
  const size_t width = needs.size();
  front.fewest_devices = std::min(front.fewest_devices, point.devices);
  size_t kept = 0;
  for (size_t i = 0; i < front.points.size(); ++i) {
    const int order =
        Compare(front.points[i], front.needs.data() + i * width, point, needs.data(), width);
    if (order < 0) {
      CHECK(kept == i);  // Whoever dominates the new point dominates what the
                         // new point dominates.
      return;
    }
    if (order > 0) continue;
    if (kept != i) {
      front.points[kept] = front.points[i];
      std::copy_n(front.needs.begin() + i * width, width, front.needs.begin() + kept * width);
    }
    ++kept;
  }
  front.points.resize(kept);
  front.needs.resize(kept * width);
  if (kept == kMaxFront) {
    // Beyond the limit the least promising point goes: most devices, then the
    // greatest needs.
    truncated_ = true;
    const auto key = [&](const Point& p, const NeedRows::Row* rows) {
      int64_t sum = 0;
      for (size_t x = 0; x < width; ++x) sum += rows_.Sum(rows[x]);
      return std::pair<int64_t, int64_t>(p.devices, sum);
    };
    size_t worst = 0;
    for (size_t i = 1; i < kept; ++i) {
      if (key(front.points[i], front.needs.data() + i * width) >
          key(front.points[worst], front.needs.data() + worst * width)) {
        worst = i;
      }
    }
    if (key(point, needs.data()) >= key(front.points[worst], front.needs.data() + worst * width)) {
      return;
    }
    front.points[worst] = point;
    std::copy_n(needs.begin(), width, front.needs.begin() + worst * width);
    return;
  }
  front.points.push_back(point);
  front.needs.insert(front.needs.end(), needs.begin(), needs.end());
}

// False if the context expired.
bool PartitionSearch::ExtendFrom(int32_t end, const PartitionLimits& limits) {
  const size_t width = configs_.size();
  const int32_t left = limits.devices - fronts_[end].fewest_devices;
  int32_t fastest = 0;
  for (size_t r = 0;; ++r) {
    const StageRanges::Range* range = ranges_->At(end, r);
    if (range == nullptr || range->begin < relaxed_->Reach(end)) break;
    if (!Poll()) return false;
    const int32_t most_replicas = left - before_[range->begin];
    if (most_replicas < 1) continue;
    const Step step{end, range, ranges_->Parents(end, r)};
    if (width == 1) {
      const int32_t option =
          Allowed(range->begin, end) ? FirstOption(*range, end, 0, most_replicas, fastest) : -1;
      if (option >= 0) Extend(step, option, limits);
      continue;
    }
    const int16_t* options = first_options_.data() + row_begin_[end] + r * width;
    for (size_t c = 0; c < width; ++c) {
      if (options[c] < 0 || choices_[options[c]].replicas > most_replicas) continue;
      if (configs_[c].k * configs_[c].micro_batch > limits.in_flight) continue;
      Extend(step, options[c], limits);
    }
  }
  return true;
}

bool PartitionSearch::IsRefuted(double t, const PartitionLimits& limits) const {
  for (const Refuted& refuted : refuted_) {
    if (t <= refuted.t && limits.devices <= refuted.limits.devices &&
        limits.in_flight <= refuted.limits.in_flight) {
      return true;
    }
  }
  return std::any_of(easier_.begin(), easier_.end(),
                     [&](const PartitionSearch* easier) { return easier->IsRefuted(t, limits); });
}

// The answer of a search that differs only in messages, where they did not
// matter.
std::optional<Partition> PartitionSearch::Learnt(double t, const PartitionLimits& limits) const {
  if (options_.messages != Messages::kNetwork) return std::nullopt;
  for (const PartitionSearch* easier : easier_) {
    if (easier->options_.messages != Messages::kInside ||
        easier->options_.replicas != options_.replicas) {
      continue;
    }
    for (const Found& found : easier->found_) {
      if (found.t != t || found.limits.devices != limits.devices ||
          found.limits.in_flight != limits.in_flight) {
        continue;
      }
      Partition partition = found.partition;
      partition.bottleneck = 0;
      for (const StageChoice& stage : partition.stages) {
        partition.bottleneck = std::max(
            partition.bottleneck,
            StageTps(stage.begin, stage.end, stage.replicas, stage.config, stage.recompute));
      }
      return partition;
    }
  }
  return std::nullopt;
}

void PartitionSearch::Forget() {
  fronts_ = {};
  first_options_ = {};
  bounded_devices_ = 0;
}

std::optional<Partition> PartitionSearch::Find(double t, const PartitionLimits& limits) {
  const int32_t n = oracle_->size();
  if (context_->Expired() || IsRefuted(t, limits)) return std::nullopt;
  if (std::optional<Partition> learnt = Learnt(t, limits)) return learnt;
  t_ = t * kTimeSlack;
  states_ += n;
  if (relaxed_->Least(t_) > limits.devices || !Bound(limits.devices)) return std::nullopt;
  if (before_[n] > limits.devices) {
    refuted_.push_back({t, limits});
    return std::nullopt;
  }
  messages_matter_ = messages_matter_in_bound_;
  truncated_ = false;
  rows_.Reset(limits.in_flight);
  fronts_.resize(n + 1);
  for (Front& front : fronts_) {
    front.points.clear();
    front.needs.clear();
    front.fewest_devices = std::numeric_limits<int32_t>::max() / 2;
  }
  fronts_[n].points.push_back({});
  fronts_[n].fewest_devices = 0;
  for (int32_t end = n; end > 0; --end) {
    if (fronts_[end].points.empty()) continue;  // As where Bound() saw no answer.
    if (!ExtendFrom(end, limits)) return std::nullopt;
  }
  int32_t best = -1;
  const Front& whole = fronts_[0];
  for (size_t i = 0; i < whole.points.size(); ++i) {
    const Point& point = whole.points[i];
    if (options_.exact_stages && point.stages != options_.max_stages) continue;
    if (best < 0 || point.devices < whole.points[best].devices) best = static_cast<int32_t>(i);
  }
  if (best < 0) {
    if (!truncated_) refuted_.push_back({t, limits});
    return std::nullopt;
  }
  Partition partition = Assemble(best);
  if (options_.messages == Messages::kInside && !messages_matter_) {
    found_.push_back({t, limits, partition});
  }
  return partition;
}

Partition PartitionSearch::Assemble(int32_t point) const {
  Partition partition;
  partition.devices = fronts_[0].points[point].devices;
  const int32_t n = oracle_->size();
  for (int32_t begin = 0; begin < n;) {
    const Point& at = fronts_[begin].points[point];
    const StageOption& option = choices_[at.option];
    partition.stages.push_back(
        {begin, at.end, option.replicas, configs_[option.config], at.in_flight, option.recompute});
    partition.bottleneck = std::max(
        partition.bottleneck,
        StageTps(begin, at.end, option.replicas, configs_[option.config], option.recompute));
    partition.deepest = std::max(partition.deepest, at.in_flight);
    begin = at.end;
    point = at.rest;
  }
  return partition;
}

std::optional<Partition> PartitionSearch::Minimize(double least, double most,
                                                   const PartitionLimits& limits,
                                                   double precision) {
  if (std::max(least, LowerBound(limits.devices)) > most * kTimeSlack) return std::nullopt;
  double low = std::max(least, relaxed_->LeastTime(limits.devices, most, kPrecision, *context_));
  if (low > most * kTimeSlack) return std::nullopt;
  std::optional<Partition> best;
  double step = 0.02;
  for (double probe = low; !best.has_value(); probe = low * (1 + step), step *= 3) {
    const bool last = probe >= most;
    best = Find(std::min(probe, most), limits);
    if (context_->Expired() || (last && !best.has_value())) return best;
    if (!best.has_value()) low = probe;
  }
  double high = best->bottleneck;
  while (high > low * (1 + precision) && !context_->Expired()) {
    const double probe = (low + high) / 2;
    std::optional<Partition> found = Find(probe, limits);
    if (found.has_value()) {
      high = found->bottleneck;
      best = std::move(found);
    } else {
      low = probe;
    }
  }
  return best;
}

}  // namespace stagewright
