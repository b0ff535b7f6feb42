#include "planner_service/planners/dapple/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace stagewright::dapple {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int64_t kMostPlansPerCut = 1 << 13;
constexpr size_t kMostLabelsPerCut = 512;
// Beyond so many devices, stages grow by several at a time and fewer plans are tried.
constexpr int32_t kManyDevices = 64;

struct Label {
  ChainStage stage;  // The last planned one.
  int32_t occupancy = Placements::kEmpty;
  int32_t parent = -1;
  int32_t stages = 0;
  StageLoad times;
  double hope = kNever;  // L if the rest could be spread evenly over all other devices for free.
};

class LabelSearch {
 public:
  LabelSearch(const ChainCosts& costs, const Network& network, Placements& placements,
              const SearchOptions& options, const SearchContext& context)
      : costs_(costs),
        network_(network),
        placements_(placements),
        options_(options),
        context_(context),
        most_replicas_(std::min(options.most_replicas, placements.size())),
        one_device_(costs.forward[0].back() + costs.backward[0].back()) {
    most_replicas_ -= most_replicas_ % options_.copies;
  }

  SearchResult Run() {
    if (most_replicas_ < options_.copies) return std::move(result_);
    const int32_t layers = costs_.size();
    at_.resize(layers + 1);
    labels_.push_back({{0, 0, -1}, Placements::kEmpty, -1, 0, {}, 0});
    Complete(0, 0);
    at_[0][Placements::kEmpty] = {0};
    for (int32_t p = 0; p < layers && !context_.Expired(); ++p) {
      std::vector<int32_t> here;
      for (const auto& [occupancy, labels] : at_[p]) {
        here.insert(here.end(), labels.begin(), labels.end());
      }
      std::stable_sort(here.begin(), here.end(),
                       [&](int32_t a, int32_t b) { return labels_[a].hope < labels_[b].hope; });
      if (here.size() > kMostLabelsPerCut) here.resize(kMostLabelsPerCut);
      left_ = kMostPlansPerCut / std::max(1, placements_.size() / kManyDevices);
      for (int32_t label : here) {
        if (left_ <= 0 || context_.Expired()) break;
        Extend(label, p);
      }
    }
    return std::move(result_);
  }

  double Latency(const std::vector<ChainStage>& stages) {
    path_.clear();
    int32_t before = -1;
    for (const ChainStage& stage : stages) {
      path_.push_back(TimesOf(stage, before));
      before = stage.devices;
    }
    return Rate();
  }

 private:
  Affine Transfer(int32_t from, int32_t to) {
    const auto [it, added] = transfers_.try_emplace({from, to});
    if (added) {
      it->second = network_.Transfer(placements_.Devices(from), placements_.Devices(to));
    }
    return it->second;
  }

  Affine AllReduce(int32_t set) {
    const auto [it, added] = reductions_.try_emplace(set);
    if (added) it->second = network_.AllReduce(placements_.Devices(set));
    return it->second;
  }

  StageLoad TimesOf(const ChainStage& stage, int32_t before) {
    const auto replicas = static_cast<int32_t>(placements_.Devices(stage.devices).size());
    const size_t table = costs_.forward.size() == 1 ? 0 : replicas - 1;
    const double each = static_cast<double>(options_.copies) / replicas;
    StageLoad times;
    const auto& forward = costs_.forward[table];
    const auto& backward = costs_.backward[table];
    times.forward = (forward[stage.end] - forward[stage.begin]) * each;
    times.backward = (backward[stage.end] - backward[stage.begin]) * each;
    // The published program counts the parameters of a stage through the first layer of the next.
    const bool one_more = options_.ranking == Ranking::kCoded;
    const int32_t last = one_more ? std::min(stage.end + 1, costs_.size()) : stage.end;
    times.all_reduce =
        AllReduce(stage.devices).Seconds(costs_.parameters[last] - costs_.parameters[stage.begin]);
    if (before >= 0) {
      times.transfer = Transfer(before, stage.devices).Seconds(costs_.boundary[stage.begin]);
    }
    return times;
  }

  // The iteration time of path_, as the options rank plans.
  double Rate() {
    ++result_.visited;
    --left_;
    if (options_.ranking == Ranking::kPaper) {
      return LatencyAsInPaper(path_, options_.micro_batches, options_.pivot_sum).Latency();
    }
    coded_.stages = path_;
    coded_.one_device = one_device_;
    coded_.micro_batches = options_.micro_batches;
    const bool pair = path_.size() == 2 && options_.copies == 1;
    coded_.steady_transfers = pair ? 1 : 2 * options_.copies;
    return LatencyAsCoded(coded_);
  }

  // What a stage's forward and backward pass may take in a plan better than the best: L is no less
  // than M times that of any stage (formulas 1 to 3), and in the program's formula no less than
  // M - 1 times that and a micro-batch on one device. As printed, L may be less by twice B_Q.
  double StageLimit() const {
    auto count = static_cast<double>(options_.micro_batches);
    if (options_.ranking == Ranking::kPaper) {
      if (options_.pivot_sum == PivotSum::kAsPrinted) count -= 2;
      return count > 0 ? best_ / count : kNever;
    }
    return count > 1 ? (best_ - one_device_) / (count - 1) : kNever;
  }

  // The least replicas with which a stage of [begin, end) keeps to that.
  double Needed(int32_t begin, int32_t end) const {
    const double limit = StageLimit();
    const double work = (costs_.least[end] - costs_.least[begin]) * options_.copies;
    return limit > 0 && limit != kNever ? std::max(1.0, std::ceil(work / limit - 1e-9)) : 1;
  }

  bool Fits(int32_t begin, int32_t end, int32_t replicas) const {
    return !options_.fits || options_.fits(begin, end, replicas);
  }

  double Hope(int32_t label) {
    const ChainStage& last = labels_[label].stage;
    const int32_t left = placements_.size() - placements_.Used(labels_[label].occupancy);
    const double rest = (costs_.least.back() - costs_.least[last.end]) * options_.copies / left;
    LoadPath(label);
    path_.push_back({rest / 2, rest / 2, 0, 0});
    return Rate();
  }

  // Puts [p, end) on what is left after `label`, and on as many as one micro-batch can use.
  void Complete(int32_t label, int32_t p) {
    const int32_t layers = costs_.size();
    const int32_t stages = labels_[label].stages + 1;
    if (options_.exact_stages ? stages != options_.most_stages
                              : options_.most_stages > 0 && stages > options_.most_stages) {
      return;
    }
    const int32_t left = placements_.size() - placements_.Used(labels_[label].occupancy);
    int32_t count = std::min(left, most_replicas_);
    count -= count % options_.copies;
    if (count < 1 || !Fits(p, layers, count)) return;
    for (const Placements::Choice choice : placements_.Next(labels_[label].occupancy, count)) {
      LoadPath(label);
      const ChainStage last{p, layers, choice.devices};
      path_.push_back(TimesOf(last, labels_[label].stage.devices));
      const double latency = Rate();
      Keep(label, last, latency);
    }
  }

  void LoadPath(int32_t label) {
    path_.clear();
    for (int32_t l = label; labels_[l].parent >= 0; l = labels_[l].parent) {
      path_.push_back(labels_[l].times);
    }
    std::reverse(path_.begin(), path_.end());
  }

  void Keep(int32_t label, const ChainStage& last, double latency) {
    best_ = std::min(best_, latency);
    auto& plans = result_.plans;
    if (plans.size() == options_.keep && latency >= plans.back().latency) return;
    ChainPlan plan;
    plan.latency = latency;
    plan.stages = {last};
    for (int32_t l = label; labels_[l].parent >= 0; l = labels_[l].parent) {
      plan.stages.push_back(labels_[l].stage);
    }
    std::reverse(plan.stages.begin(), plan.stages.end());
    const auto place = std::upper_bound(
        plans.begin(), plans.end(), latency,
        [](double value, const ChainPlan& other) { return value < other.latency; });
    plans.insert(place, std::move(plan));
    if (plans.size() > options_.keep) plans.pop_back();
  }

  void Extend(int32_t from, int32_t p) {
    const int32_t layers = costs_.size();
    const int32_t copies = options_.copies;
    const int32_t step = copies * std::max(1, placements_.size() / kManyDevices);
    const int32_t left = placements_.size() - placements_.Used(labels_[from].occupancy);
    if (options_.most_stages > 0 && labels_[from].stages + 2 > options_.most_stages) return;
    for (int32_t q = p + 1; q < layers && left_ > 0; ++q) {
      const double needed = Needed(p, q);
      const double later = Needed(q, layers);
      const int32_t most = std::min(left - copies, most_replicas_);
      if (needed > most) break;
      if (context_.Expired()) return;
      if (needed + later > left) continue;
      int32_t count = static_cast<int32_t>(needed);
      count = (count + copies - 1) / copies * copies;
      for (; count <= most && count + later <= left; count += step) {
        if (!Fits(p, q, count)) continue;
        // A copy: Complete may make more choices.
        const std::vector<Placements::Choice> choices =
            placements_.Next(labels_[from].occupancy, count);
        for (const Placements::Choice& choice : choices)
          Add(from, {p, q, choice.devices}, choice.occupancy);
      }
    }
  }

  void Add(int32_t from, const ChainStage& stage, int32_t occupancy) {
    Label label;
    label.stage = stage;
    label.occupancy = occupancy;
    label.parent = from;
    label.stages = labels_[from].stages + 1;
    label.times = TimesOf(stage, labels_[from].stage.devices);
    if (label.times.forward + label.times.backward > StageLimit() * (1 + 1e-9)) return;
    const auto id = static_cast<int32_t>(labels_.size());
    labels_.push_back(label);
    labels_[id].hope = Hope(id);
    // No plan that begins like this is among the best.
    const auto& plans = result_.plans;
    if (plans.size() == options_.keep && labels_[id].hope > plans.back().latency * (1 + 1e-9)) {
      labels_.pop_back();
      return;
    }
    Complete(id, stage.end);
    std::vector<int32_t>& own = at_[stage.end][occupancy];
    const auto worse = [&](int32_t a, int32_t b) { return labels_[a].hope < labels_[b].hope; };
    own.insert(std::upper_bound(own.begin(), own.end(), id, worse), id);
    if (own.size() <= options_.width) return;
    if (own.back() == id) labels_.pop_back();  // Nothing refers to it.
    own.pop_back();
  }

  const ChainCosts& costs_;
  const Network& network_;
  Placements& placements_;
  const SearchOptions& options_;
  const SearchContext& context_;
  int32_t most_replicas_;
  double one_device_;  // A micro-batch on one device.
  int64_t left_ = kMostPlansPerCut;
  double best_ = kNever;
  std::vector<Label> labels_;
  std::vector<std::map<int32_t, std::vector<int32_t>>> at_;  // By position and occupancy.
  std::vector<StageLoad> path_;                              // The plan that is rated.
  CodedPlan coded_;
  absl::flat_hash_map<std::pair<int32_t, int32_t>, Affine> transfers_;
  absl::flat_hash_map<int32_t, Affine> reductions_;
  SearchResult result_;
};

}  // namespace

SearchResult SearchChain(const ChainCosts& costs, const Network& network, Placements& placements,
                         const SearchOptions& options, const SearchContext& context) {
  return LabelSearch(costs, network, placements, options, context).Run();
}

double LatencyOf(const ChainCosts& costs, const Network& network, const Placements& placements,
                 const SearchOptions& options, const std::vector<ChainStage>& stages) {
  Placements copy = placements;
  const SearchContext context;
  return LabelSearch(costs, network, copy, options, context).Latency(stages);
}

}  // namespace stagewright::dapple
