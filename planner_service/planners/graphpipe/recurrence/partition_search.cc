#include "planner_service/planners/graphpipe/recurrence/partition_search.h"

#include <algorithm>
#include <utility>

namespace stagewright {

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
    : PartitionSearch(
          *other.ranges_, other.relaxed_,
          [&] {
            PartitionOptions options = other.options_;
            options.messages = messages;
            return options;
          }(),
          *other.context_) {}

PartitionSearch::PartitionSearch(StageRanges& ranges, std::shared_ptr<RelaxedSearch> relaxed,
                                 PartitionOptions options, const SearchContext& context)
    : ranges_(&ranges),
      relaxed_(std::move(relaxed)),
      options_(std::move(options)),
      context_(&context),
      fit_(ranges, *relaxed_, options_.messages),
      bound_(ranges, *relaxed_, options_),
      states_(context),
      rows_(relaxed_->configs(), ranges.oracle().problem().mini_batch) {}

// The samples that the stage of a step keeps in flight before a partition with these needs: whole
// micro-batches, at most the mini-batch.
int64_t PartitionSearch::InFlight(const Step& step, const NeedRows::Row* needs,
                                  int32_t config) const {
  const auto& classes = ranges_->frontier().At(step.end);
  const auto& [micro_batch, k] = relaxed_->configs()[config];
  int64_t in_flight = k * micro_batch;
  for (size_t c = 0; c < classes.size(); ++c) {
    if (classes[c].last_member >= step.range->begin) {
      in_flight = std::max(in_flight, rows_.At(needs[c], config));
    }
  }
  const int64_t micro_batches = (in_flight + micro_batch - 1) / micro_batch;
  return std::min(micro_batches * micro_batch, ranges_->oracle().problem().mini_batch);
}

// need', into needs_: what the predecessors of the range's members have to keep in flight for it,
// or for what they see beyond it.
void PartitionSearch::DeriveNeeds(const Step& step, const NeedRows::Row* needs_behind,
                                  int32_t config, int64_t in_flight) {
  const auto& classes = ranges_->frontier().At(step.range->begin);
  needs_.resize(classes.size());
  if (classes.empty()) return;
  const NeedRows::Row asked = rows_.Of(config, in_flight);
  for (size_t c = 0; c < classes.size(); ++c) {
    const int32_t parent = step.parents[c];
    const bool reads = classes[c].first_successor < step.end;
    const NeedRows::Row behind = parent < 0 ? NeedRows::kNothing : needs_behind[parent];
    needs_[c] = reads ? rows_.Larger(behind, asked) : behind;
  }
}

// Puts the stage of `step` before all partitions behind it, with the options from `first` on.
void PartitionSearch::Extend(const Step& step, int32_t first, const PartitionLimits& limits) {
  const StageRanges::Range& range = *step.range;
  const std::vector<StageOption>& options = relaxed_->options();
  const int32_t c = options[first].config;
  const int32_t last = relaxed_->option_ends()[c];
  const PartitionFront& rest = fronts_[step.end];
  const size_t classes_behind = ranges_->frontier().At(step.end).size();
  const int32_t most = limits.devices - bound_.Before(range.begin);
  const int32_t stages_before = range.begin > 0 ? 1 : 0;
  states_.Add(static_cast<int64_t>(rest.points().size()));
  for (size_t i = 0; i < rest.points().size(); ++i) {
    const PartitionPoint& behind = rest.points()[i];
    if (behind.devices + options[first].replicas > most) continue;
    const int32_t stages = behind.stages + 1;
    if (options_.max_stages > 0 && stages + stages_before > options_.max_stages) continue;
    const NeedRows::Row* needs = rest.Needs(i, classes_behind);
    const int64_t in_flight = InFlight(step, needs, c);
    if (in_flight > limits.in_flight) continue;
    // The fewest replicas that fit into memory with so much in flight, and meet t.
    for (int32_t o = first; o < last && behind.devices + options[o].replicas <= most; ++o) {
      const Bytes memory =
          fit_.Memory(options[o], range, step.end, in_flight / relaxed_->configs()[c].micro_batch);
      if (memory > relaxed_->memory()) continue;
      if (o != first && !fit_.Meets(options[o], range, step.end)) continue;
      DeriveNeeds(step, needs, c, in_flight);
      const PartitionPoint point{behind.devices + options[o].replicas,
                                 stages,
                                 step.end,
                                 static_cast<int32_t>(i),
                                 o,
                                 in_flight,
                                 behind.traffic + range.extent.in_per_sample,
                                 std::max(behind.peak, memory)};
      if (!fronts_[range.begin].Insert(point, needs_, rows_, options_)) truncated_ = true;
      break;
    }
  }
}

// Every stage that ends at `end`. False if the context expired.
bool PartitionSearch::ExtendFrom(int32_t end, const PartitionLimits& limits) {
  const std::vector<StageConfig>& configs = relaxed_->configs();
  const int32_t left = limits.devices - fronts_[end].fewest_devices();
  int32_t fastest = 0;
  for (size_t r = 0;; ++r) {
    const StageRanges::Range* range = ranges_->At(end, r);
    if (range == nullptr || range->begin < relaxed_->Reach(end)) break;
    if (!states_.Next()) return false;
    const int32_t most_replicas = left - bound_.Before(range->begin);
    if (most_replicas < 1) continue;
    const Step step{end, range, ranges_->Parents(end, r)};
    if (configs.size() == 1) {
      if (!options_.Allows(range->begin, end, ranges_->oracle().size())) continue;
      const int32_t option = fit_.First(*range, end, 0, most_replicas, fastest);
      if (option >= 0) Extend(step, option, limits);
      continue;
    }
    const int16_t* options = bound_.FirstOptions(end, r);
    for (size_t c = 0; c < configs.size(); ++c) {
      if (options[c] < 0 || relaxed_->options()[options[c]].replicas > most_replicas) continue;
      if (configs[c].k * configs[c].micro_batch > limits.in_flight) continue;
      Extend(step, options[c], limits);
    }
  }
  return true;
}

// Front(p) for every p. False if the context expired.
bool PartitionSearch::FillFronts(const PartitionLimits& limits) {
  const int32_t n = ranges_->oracle().size();
  rows_.Reset(limits.in_flight);
  fronts_.resize(n + 1);
  for (PartitionFront& front : fronts_) front.Clear();
  fronts_[n].BeginAtTheEnd();
  for (int32_t end = n; end > 0; --end) {
    if (!fronts_[end].empty() && !ExtendFrom(end, limits)) return false;
  }
  return true;
}

// The answer of a search that differs only in messages, where they did not matter.
std::optional<Partition> PartitionSearch::Learnt(double t, const PartitionLimits& limits) const {
  if (options_.messages != Messages::kNetwork) return std::nullopt;
  std::optional<Partition> partition = answers_.FromEasier(t, limits, options_.replicas);
  if (!partition.has_value()) return std::nullopt;
  partition->bottleneck = 0;
  for (const StageChoice& stage : partition->stages) {
    partition->bottleneck =
        std::max(partition->bottleneck,
                 StageTps(stage.begin, stage.end, stage.replicas, stage.config, stage.recompute));
  }
  return partition;
}

void PartitionSearch::Forget() {
  fronts_ = {};
  bound_.Forget();
}

std::optional<Partition> PartitionSearch::Find(double t, const PartitionLimits& limits) {
  const int32_t n = ranges_->oracle().size();
  states_.Tell();
  if (context_->Expired(relaxed_->WorkOfLeast()) || answers_.IsRefuted(t, limits))
    return std::nullopt;
  if (std::optional<Partition> learnt = Learnt(t, limits)) return learnt;
  fit_.Aim(t * kTimeSlack);
  states_.Add(n);
  if (relaxed_->Least(fit_.t()) > limits.devices) return std::nullopt;
  if (!bound_.Prepare(limits.devices, fit_, states_)) return std::nullopt;
  if (bound_.Before(n) > limits.devices) {
    answers_.Refute(t, limits);
    return std::nullopt;
  }
  fit_.set_messages_matter(bound_.messages_matter());
  truncated_ = false;
  if (!FillFronts(limits)) return std::nullopt;
  int32_t best = -1;
  const std::vector<PartitionPoint>& whole = fronts_[0].points();
  for (size_t i = 0; i < whole.size(); ++i) {
    if (options_.exact_stages && whole[i].stages != options_.max_stages) continue;
    if (best < 0 || whole[i].devices < whole[best].devices) best = static_cast<int32_t>(i);
  }
  if (best < 0) {
    if (!truncated_) answers_.Refute(t, limits);
    return std::nullopt;
  }
  Partition partition = Assemble(best);
  if (options_.messages == Messages::kInside && !fit_.messages_matter()) {
    answers_.Keep(t, limits, options_.replicas, partition);
  }
  return partition;
}

Partition PartitionSearch::Assemble(int32_t point) const {
  Partition partition;
  partition.devices = fronts_[0].points()[point].devices;
  const int32_t n = ranges_->oracle().size();
  for (int32_t begin = 0; begin < n;) {
    const PartitionPoint& at = fronts_[begin].points()[point];
    const StageOption& option = relaxed_->options()[at.option];
    const StageConfig& config = relaxed_->configs()[option.config];
    partition.stages.push_back(
        {begin, at.end, option.replicas, config, at.in_flight, option.recompute});
    partition.bottleneck = std::max(
        partition.bottleneck, StageTps(begin, at.end, option.replicas, config, option.recompute));
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
