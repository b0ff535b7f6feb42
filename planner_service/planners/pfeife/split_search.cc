#include "planner_service/planners/pfeife/split_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace stagewright::pfeife {
namespace {

constexpr size_t kMostPaths = 16;
// What ruling a candidate out takes, in visits of a vertex, per slice.
constexpr int64_t kBoundedCost = 4;
// A bound within rounding of the worst time in the beam rules nothing out.
constexpr double kRounding = 1 + 1e-12;

bool Better(const Cuts& a, const Cuts& b) {
  return std::tie(a.excess, a.time, a.points) < std::tie(b.excess, b.time, b.points);
}

}  // namespace

SplitSearch::SplitSearch(ChainModel& model, std::vector<int32_t> devices,
                         const BeamOptions& options, SearchContext& context, Effort& effort)
    : model_(model),
      devices_(std::move(devices)),
      options_(options),
      context_(context),
      effort_(effort) {
  for (int32_t k = 1; k < model.size(); k = k < options.reach ? k + 1 : k + (k + 1) / 2) {
    strides_.push_back(k);
  }
}

std::vector<Cuts> SplitSearch::Run(const LoopedShape& shape,
                                   const std::vector<std::vector<int32_t>>& starts) {
  beam_.clear();
  paths_.clear();
  seen_.clear();
  graph_ = MakeGraph(shape);
  peak_memory_.reset();
  effort_.passes += 2 * int64_t{shape.slices()} * shape.micro_batches;
  if (!graph_) return {};
  for (const std::vector<int32_t>& start : starts) Consider(start);
  while (!Ended()) {
    const auto next = std::find_if(beam_.begin(), beam_.end(),
                                   [](const Entry& entry) { return !entry.expanded; });
    if (next == beam_.end()) break;
    next->expanded = true;
    Expand(std::vector<int32_t>(next->cuts.points));
  }
  std::vector<Cuts> found;
  for (Entry& entry : beam_) found.push_back(std::move(entry.cuts));
  return found;
}

std::optional<DependencyGraph> SplitSearch::MakeGraph(const LoopedShape& shape) const {
  context_.Spend(work::kMadePass * 2 * int64_t{shape.slices()} * shape.micro_batches);
  return DependencyGraph::Create(shape);
}

double SplitSearch::TimeOf(const LoopedShape& shape, const std::vector<int32_t>& points) {
  std::optional<DependencyGraph> graph = MakeGraph(shape);
  if (!graph) return -1;
  model_.Slices(points, devices_, slices_);
  effort_.passes += 2 * graph->size();
  ++effort_.evaluated;
  return graph->LongestPath(slices_);
}

std::optional<Cuts> SplitSearch::Rate(const LoopedShape& shape,
                                      const std::vector<int32_t>& points) {
  graph_ = MakeGraph(shape);
  peak_memory_.reset();
  if (!graph_) return std::nullopt;
  model_.Slices(points, devices_, slices_);
  effort_.passes += 2 * graph_->size();
  ++effort_.evaluated;
  const double time = graph_->LongestPath(slices_);
  return Cuts{points, time, Excess(points)};
}

void SplitSearch::Expand(const std::vector<int32_t>& points) {
  for (size_t which = 1; which + 1 < points.size(); ++which) {
    for (int32_t stride : strides_) {
      if (Ended()) return;
      for (int32_t to : {points[which] - stride, points[which] + stride}) {
        if (to > points[which - 1] && to < points[which + 1]) {
          std::vector<int32_t> single = points;
          single[which] = to;
          Consider(std::move(single));
        }
        if (to >= static_cast<int32_t>(which) &&
            model_.size() - to >= static_cast<int32_t>(points.size() - 1 - which)) {
          Consider(Moved(points, which, to));
        }
      }
    }
  }
}

// Moves one point, and the others so that the slices on either side keep their proportions.
std::vector<int32_t> SplitSearch::Moved(const std::vector<int32_t>& points, size_t which,
                                        int32_t to) const {
  const auto last = static_cast<int32_t>(points.size()) - 1;
  const double left = static_cast<double>(to) / points[which];
  const double right = static_cast<double>(model_.size() - to) / (model_.size() - points[which]);
  std::vector<int32_t> moved = points;
  for (int32_t i = 1; i < last; ++i) {
    const double exact = i <= static_cast<int32_t>(which)
                             ? points[i] * left
                             : model_.size() - (model_.size() - points[i]) * right;
    moved[i] = std::clamp(static_cast<int32_t>(std::lround(exact)), moved[i - 1] + 1,
                          model_.size() - (last - i));
  }
  return moved;
}

void SplitSearch::Consider(std::vector<int32_t> points) {
  if (!seen_.insert(points).second) return;
  const bool full = static_cast<int32_t>(beam_.size()) >= options_.width;
  // Nothing is known of the memory of what is too slow, so time alone rules out only where the
  // whole beam fits.
  const bool fits = full && beam_.back().cuts.excess == 0;
  const bool bound = fits && options_.bounds;
  const double most = fits ? beam_.back().cuts.time * kRounding : 0;
  model_.Times(points, devices_, slices_);
  bool ruled_out = bound && TooBusy(most);
  if (!ruled_out) {
    model_.Messages(points, devices_, slices_);
    ruled_out = bound && TooLong(most);
  }
  if (ruled_out) {
    ++effort_.bounded;
    effort_.passes += kBoundedCost * graph_->shape().slices();
    return;
  }
  Cuts cuts{std::move(points), graph_->LongestPath(slices_), 0};
  ++effort_.evaluated;
  effort_.passes += graph_->size();
  if (options_.bounds) Remember(graph_->CriticalPath());
  if (fits && cuts.time > beam_.back().cuts.time) return;
  cuts.excess = Excess(cuts.points);
  if (full && !Better(cuts, beam_.back().cuts)) return;
  const auto place = std::upper_bound(
      beam_.begin(), beam_.end(), cuts,
      [](const Cuts& value, const Entry& entry) { return Better(value, entry.cuts); });
  beam_.insert(place, Entry{std::move(cuts), false});
  if (full) beam_.pop_back();
}

// Whether the work of a device is longer than `most`.
bool SplitSearch::TooBusy(double most) {
  const size_t devices = devices_.size();
  work_.assign(devices, 0);
  for (size_t s = 0; s < slices_.forward.size(); ++s) {
    work_[s % devices] += slices_.forward[s] + slices_.backward[s];
  }
  const double busiest = *std::max_element(work_.begin(), work_.end());
  return busiest * graph_->shape().micro_batches > most;
}

// Whether some path that was critical before is.
bool SplitSearch::TooLong(double most) {
  for (size_t i = 0; i < paths_.size(); ++i) {
    if (PathLength(paths_[i], slices_) <= most) continue;
    std::rotate(paths_.begin(), paths_.begin() + static_cast<int64_t>(i),
                paths_.begin() + static_cast<int64_t>(i) + 1);
    return true;
  }
  return false;
}

void SplitSearch::Remember(PathCounts path) {
  if (paths_.size() == kMostPaths) paths_.pop_back();
  paths_.insert(paths_.begin(), std::move(path));
}

double SplitSearch::Excess(const std::vector<int32_t>& points) {
  const SliceMemory memory = model_.Memory(points);
  const Cluster& cluster = *model_.costs().problem().cluster;
  const auto excess = [&](const std::vector<Bytes>& peaks) {
    double most = 0;
    for (size_t r = 0; r < devices_.size(); ++r) {
      const double budget =
          options_.memory * static_cast<double>(cluster.device(DeviceId(devices_[r])).memory);
      most = std::max(most, static_cast<double>(peaks[r]) / budget - 1);
    }
    return most;
  };
  // Mostly there is plenty, whenever passes run.
  if (!peak_memory_) {
    peak_memory_.emplace(graph_->shape(), model_.recompute());
    context_.Spend(work::kMadePass * graph_->size());
  }
  if (excess(peak_memory_->AtMost(memory, slices_)) <= 0) return 0;
  effort_.passes += graph_->size();
  context_.Spend(work::kTimelinePass * graph_->size());
  return excess(peak_memory_->Estimate(memory, slices_));
}

}  // namespace stagewright::pfeife
