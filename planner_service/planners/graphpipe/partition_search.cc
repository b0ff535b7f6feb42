#include "planner_service/planners/graphpipe/partition_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "planner_service/simulator/durations.h"

namespace stagewright {
namespace {

// Rounding of sums of nanoseconds must not decide.
constexpr double kSlack = 1 + 1e-9;

}  // namespace

// The range [begin, end) while begin moves towards the front of the order.
struct PartitionSearch::Step {
  int32_t begin;
  int32_t end;
  // Class at `end` of each class at `begin`: what its members see beyond `end`; -1: nothing.
  const std::vector<int32_t>* parents;
  const StageOracle::Extent* extent;
};

PartitionSearch::PartitionSearch(const StageOracle& oracle, const Frontier& frontier,
                                 std::vector<StageConfig> configs, PartitionOptions options,
                                 const SearchContext& context)
    : oracle_(&oracle),
      frontier_(&frontier),
      configs_(std::move(configs)),
      options_(std::move(options)),
      context_(&context),
      mini_batch_(oracle.problem().mini_batch),
      memory_(static_cast<Bytes>(options_.memory_share * static_cast<double>(oracle.budget()))) {
  const Cluster& cluster = *oracle.problem().cluster;
  DescribeNetwork(cluster);
  for (size_t c = 0; c < configs_.size(); ++c) {
    const int64_t b = configs_[c].micro_batch;
    for (int32_t d = 1; d <= cluster.size() && b % d == 0; d *= 2) {
      choices_.push_back({static_cast<int32_t>(c), d, b / d, &oracle.Share(b / d)});
      if (!options_.replicas) break;
    }
  }
  const int32_t n = oracle.size();
  least_work_.assign(n + 1, 0);
  for (int32_t p = 0; p < n; ++p) {
    double work = std::numeric_limits<double>::infinity();
    double fastest = work;
    for (const Option& option : choices_) {
      const double time = option.costs->Time(p, p + 1);
      work = std::min(work, time / static_cast<double>(option.share));
      fastest = std::min(fastest, time / static_cast<double>(configs_[option.config].micro_batch));
    }
    least_work_[p + 1] = least_work_[p] + work;
    largest_operator_ = std::max(largest_operator_, fastest);
  }
}

void PartitionSearch::DescribeNetwork(const Cluster& cluster) {
  double fastest = 0;
  double slowest = std::numeric_limits<double>::infinity();
  int32_t node_size = 1;  // Devices of the largest node.
  for (int32_t a = 0; a < cluster.size(); ++a) {
    int32_t neighbours = 0;
    for (int32_t b = 0; b < cluster.size(); ++b) {
      neighbours += cluster.devices()[a].node == cluster.devices()[b].node ? 1 : 0;
      if (a == b) continue;
      const double rate = cluster.route(DeviceId(a), DeviceId(b)).bytes_per_second * 1e-9;
      fastest = std::max(fastest, rate);
      slowest = std::min(slowest, rate);
    }
    node_size = std::max(node_size, neighbours);
  }
  std::vector<DeviceId> devices;
  for (int32_t replicas = 1; replicas <= cluster.size(); replicas *= 2) {
    while (static_cast<int32_t>(devices.size()) < replicas) {
      devices.push_back(DeviceId(static_cast<int64_t>(devices.size())));
    }
    Network network;
    network.sum_latency = static_cast<double>(RingAllReduceTime(cluster, devices, 0));
    const auto gigabyte = static_cast<double>(RingAllReduceTime(cluster, devices, 1'000'000'000));
    network.sum_per_byte = (gigabyte - network.sum_latency) * 1e-9;
    if (fastest > 0) {
      const int32_t nodes = (replicas + node_size - 1) / node_size;
      network.message_per_byte = 1 / (fastest * replicas);
      network.exposed_per_byte = options_.exposed_messages / (slowest * nodes);
    }
    networks_.push_back(network);
  }
}

double PartitionSearch::LowerBound(int32_t devices) const {
  return std::max(least_work_.back() / devices, largest_operator_);
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
                                 const StageConfig& config) const {
  const double compute = oracle_->Share(config.micro_batch / replicas).Time(begin, end) /
                         static_cast<double>(config.micro_batch);
  return Tps(oracle_->At(begin, end), compute, replicas);
}

// The needs at the front of the range, into scratch_: what its members' predecessors have to keep
// in flight for it, or for what they see beyond it.
void PartitionSearch::DeriveNeeds(const Step& step, const int64_t* needs_behind,
                                  const StageConfig& config, int64_t in_flight) {
  const auto& classes = frontier_->At(step.begin);
  const size_t width = configs_.size();
  scratch_.assign(classes.size() * width, 0);
  for (size_t c = 0; c < classes.size(); ++c) {
    const int32_t parent = (*step.parents)[c];
    const bool reads = classes[c].first_successor < step.end;
    for (size_t x = 0; x < width; ++x) {
      int64_t need = parent < 0 ? 0 : needs_behind[parent * width + x];
      if (reads) {
        need = std::max(need, ComputeInFlight(configs_[x].k, configs_[x].micro_batch, config.k,
                                              config.micro_batch, in_flight));
      }
      scratch_[c * width + x] = need;
    }
  }
}

bool PartitionSearch::TryStage(const Step& step, const Option& option, int32_t option_index,
                               double t, const PartitionLimits& limits) {
  const StageConfig& config = configs_[option.config];
  const double compute =
      option.costs->Time(step.begin, step.end) / static_cast<double>(config.micro_batch);
  if (compute > t) return false;
  const Front& rest = fronts_[step.end];
  const int32_t before = static_cast<int32_t>(std::ceil(least_work_[step.begin] / t / kSlack));
  if (rest.fewest_devices + option.replicas + before > limits.devices) return true;
  if (Tps(*step.extent, compute, option.replicas) > t) return true;

  const Bytes saved = option.costs->Saved(step.begin, step.end);
  const Bytes workspace = option.costs->Workspace(step.begin, step.end);
  const int64_t micro_batches = mini_batch_ / config.micro_batch;
  if (StageOracle::Memory(*step.extent, saved, workspace, {option.share, config.k, micro_batches}) >
      memory_) {
    return true;
  }
  const size_t width = configs_.size();
  const auto& classes_after = frontier_->At(step.end);
  const int64_t round = config.k * config.micro_batch;
  for (size_t i = 0; i < rest.points.size(); ++i) {
    const Point& after = rest.points[i];
    ++states_;
    if (after.devices + option.replicas + before > limits.devices) continue;
    if (options_.max_stages > 0 &&
        after.stages + 1 + (step.begin > 0 ? 1 : 0) > options_.max_stages) {
      continue;
    }
    const int64_t* needs = rest.needs.data() + i * classes_after.size() * width;
    int64_t in_flight = round;
    for (size_t c = 0; c < classes_after.size(); ++c) {
      if (classes_after[c].last_member >= step.begin) {
        in_flight = std::max(in_flight, needs[c * width + option.config]);
      }
    }
    const int64_t shares = (in_flight + config.micro_batch - 1) / config.micro_batch;
    in_flight = std::min(shares * config.micro_batch, mini_batch_);
    if (in_flight > limits.in_flight) continue;
    const Bytes peak =
        StageOracle::Memory(*step.extent, saved, workspace,
                            {option.share, in_flight / config.micro_batch, micro_batches});
    if (peak > memory_) continue;

    DeriveNeeds(step, needs, config, in_flight);
    Insert(fronts_[step.begin],
           {after.devices + option.replicas, after.stages + 1, step.end, static_cast<int32_t>(i),
            option_index, in_flight, after.traffic + step.extent->in_per_sample,
            std::max(after.peak, peak)},
           scratch_);
  }
  return true;
}

// -1: a dominates b; 1: b dominates a (equals go to less traffic, then less memory); 0: neither.
int PartitionSearch::Compare(const Point& a, const int64_t* a_needs, const Point& b,
                             const int64_t* b_needs, size_t width) const {
  bool a_wins = a.devices <= b.devices;
  bool b_wins = b.devices <= a.devices;
  if (options_.exact_stages && a.stages != b.stages) return 0;
  if (options_.max_stages > 0) {
    a_wins = a_wins && a.stages <= b.stages;
    b_wins = b_wins && b.stages <= a.stages;
  }
  for (size_t x = 0; x < width && (a_wins || b_wins); ++x) {
    a_wins = a_wins && a_needs[x] <= b_needs[x];
    b_wins = b_wins && b_needs[x] <= a_needs[x];
  }
  if (a_wins && b_wins) {
    if (a.traffic != b.traffic) return a.traffic < b.traffic ? -1 : 1;
    return a.peak <= b.peak ? -1 : 1;
  }
  return a_wins ? -1 : b_wins ? 1 : 0;
}

void PartitionSearch::Insert(Front& front, const Point& point, const std::vector<int64_t>& needs) {
  const size_t width = needs.size();
  front.fewest_devices = std::min(front.fewest_devices, point.devices);
  size_t kept = 0;
  for (size_t i = 0; i < front.points.size(); ++i) {
    const int order =
        Compare(front.points[i], front.needs.data() + i * width, point, needs.data(), width);
    if (order < 0) {
      CHECK(kept == i);  // Whoever dominates the new point dominates what the new point dominates.
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
    // Beyond the limit the least promising point goes: most devices, then the greatest needs.
    const auto key = [&](const Point& p, const int64_t* row) {
      int64_t sum = 0;
      for (size_t x = 0; x < width; ++x) sum += row[x];
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

void PartitionSearch::ExtendFrom(int32_t end, double t, const PartitionLimits& limits) {
  const int32_t n = oracle_->size();
  std::vector<int32_t> parents(frontier_->At(end).size());
  for (size_t c = 0; c < parents.size(); ++c) parents[c] = static_cast<int32_t>(c);
  std::vector<int32_t> next;
  // More work than this in front of a stage is more than the remaining devices can do.
  const double most_work_before = t * kSlack * (limits.devices - fronts_[end].fewest_devices - 1);
  for (int32_t begin = end - 1; begin >= 0; --begin) {
    if (begin % 32 == 0 && context_->Expired()) return;
    const auto& classes = frontier_->At(begin);
    next.resize(classes.size());
    for (size_t c = 0; c < classes.size(); ++c) {
      next[c] = classes[c].parent < 0 ? -1 : parents[classes[c].parent];
    }
    parents.swap(next);
    if (least_work_[begin] > most_work_before) continue;
    const StageOracle::Extent extent = oracle_->At(begin, end);
    if (extent.resident > memory_) break;
    if (!options_.allowed.empty() && !options_.allowed[begin * (n + 1) + end]) continue;
    const Step step{begin, end, &parents, &extent};
    bool fast_enough = false;
    for (size_t o = 0; o < choices_.size(); ++o) {
      fast_enough = TryStage(step, choices_[o], static_cast<int32_t>(o), t, limits) || fast_enough;
    }
    if (!fast_enough) break;  // Time only grows with the range.
  }
}

std::optional<Partition> PartitionSearch::Find(double t, const PartitionLimits& limits) {
  const int32_t n = oracle_->size();
  t *= kSlack;
  fronts_.resize(n + 1);
  for (Front& front : fronts_) {
    front.points.clear();
    front.needs.clear();
    front.fewest_devices = std::numeric_limits<int32_t>::max() / 2;
  }
  fronts_[n].points.push_back({});
  fronts_[n].fewest_devices = 0;
  for (int32_t end = n; end > 0; --end) {
    if (fronts_[end].points.empty()) continue;
    if (context_->Expired()) return std::nullopt;
    ExtendFrom(end, t, limits);
  }
  int32_t best = -1;
  const Front& whole = fronts_[0];
  for (size_t i = 0; i < whole.points.size(); ++i) {
    const Point& point = whole.points[i];
    if (options_.exact_stages && point.stages != options_.max_stages) continue;
    if (best < 0 || point.devices < whole.points[best].devices) best = static_cast<int32_t>(i);
  }
  if (best < 0) return std::nullopt;
  return Assemble(best);
}

Partition PartitionSearch::Assemble(int32_t point) const {
  Partition partition;
  partition.devices = fronts_[0].points[point].devices;
  const int32_t n = oracle_->size();
  for (int32_t begin = 0; begin < n;) {
    const Point& at = fronts_[begin].points[point];
    const Option& option = choices_[at.option];
    partition.stages.push_back(
        {begin, at.end, option.replicas, configs_[option.config], at.in_flight});
    partition.bottleneck = std::max(
        partition.bottleneck, StageTps(begin, at.end, option.replicas, configs_[option.config]));
    partition.deepest = std::max(partition.deepest, at.in_flight);
    begin = at.end;
    point = at.rest;
  }
  return partition;
}

std::optional<Partition> PartitionSearch::Minimize(double least, double most,
                                                   const PartitionLimits& limits) {
  double low = std::max(least, LowerBound(limits.devices));
  if (low > most * kSlack) return std::nullopt;
  // The optimum mostly lies close above the bound, and a small t is answered faster than a large
  // one: gallop upwards first.
  std::optional<Partition> best;
  double step = 0.02;
  for (double probe = low; !best.has_value(); probe = low * (1 + step), step *= 3) {
    const bool last = probe >= most;
    best = Find(std::min(probe, most), limits);
    if (context_->Expired() || (last && !best.has_value())) return best;
    if (!best.has_value()) low = probe;
  }
  double high = best->bottleneck;
  while (high > low * (1 + kPrecision) && !context_->Expired()) {
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
