// Looped pipelines with prefetch after Pfeife (ICML 2025).
//
// Problem: cut the operators, in a linear order, into N_l slices for each of D devices and choose
// the order of their passes, so that the step is as short as possible and fits into memory.
//
//   paper        here                          meaning
//   |D|          LoopedShape::devices          devices
//   B            LoopedShape::micro_batches    micro-batches per step (the paper: mini-batches)
//   N_l          LoopedShape::loops            slices per device
//   B_l          LoopedShape::loop_batch       micro-batches per loop
//   B_f          LoopedShape::warm_up          prefetched forward passes, by device
//   p, K, L_K    Cuts, SplitSearch, width      split points, beam, its size
//   v, e         SlicePass, SliceCosts::Message   passes and messages: the dependency graph
//   calc_time_mem  DependencyGraph, PeakMemory
//
// Recurrence: the end of a pass is its time and the latest of the end of the pass before it on its
// device and the ends, with the time of the message, of the passes that it reads from; the step is
// the latest end.
//
// Complexity: one estimate O(passes + messages * B), passes = 2 N_l D B; a neighbour that a known
// path rules out O(N_l D). Neighbours of cuts: O(N_l D log n) for n operators.
//
// Deviations from the paper:
//  1. Real dependencies. Slices wait for the slices they read from, not for their neighbours in the
//     order (the paper linearises the graph; its code keeps these edges, too). The strategy is a
//     graph of stages.
//  2. Second order. Besides the traced order, one that interleaves parallel branches is cut
//     (linear_orders.h).
//  3. Pruned neighbours. Neighbours that the critical path of earlier cuts rules out are not
//     evaluated; the answer is that of a full evaluation. Not all shapes are searched: even cuts
//     say which look good, a budget goes to these first, and a shape in which the best cuts of its
//     neighbours take longer is left out.
//  4. Growing strides. Beyond 10 operators strides grow geometrically, so that long chains need few
//     steps.
//  5. Starts of beams. Beam searches begin with cuts of equal time and of equal memory, and with
//     the best cuts of other shapes with as many slices; cuts over the memory may enter the beam,
//     behind all that fit.
//  6. Warm-up by device. The warm-up of each device of the best is searched, too: the paper's code
//     has one prefetch for all.
//  7. Sizes and devices. The micro-batch size and the number of devices are searched, and operators
//     take the time of the kind of device that they are on. If nothing fits, slices recompute their
//     forward passes.
//  8. Simulation decides. The simulator, which knows contention, updates and what messages wait
//     for, has the last word among the best of each shape.
//  9. Short steps. Long steps are searched with fewer micro-batches and extended by the work of the
//     busiest device (Shortened in settings.h).
// 10. Views of the cluster. Where devices, memories or links differ, the search runs on several
//     views of the cluster (search/placement_views.h): it knows the speed of devices, but not which
//     of them to leave out or to place next to each other.
//
// Reference: Jhoo, Hur, Lopes, "Pfeife: Automatic Pipeline Parallelism for PyTorch", ICML 2025.
#include "planner_service/planners/pfeife/pfeife.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/strategy/check_strategy.h"
#include "planner_service/planners/pfeife/build_strategy.h"
#include "planner_service/planners/pfeife/chain_model.h"
#include "planner_service/planners/pfeife/finalist.h"
#include "planner_service/planners/pfeife/linear_orders.h"
#include "planner_service/planners/pfeife/settings.h"
#include "planner_service/planners/pfeife/split_search.h"
#include "planner_service/search/memory_shares.h"
#include "planner_service/search/micro_batch_sizes.h"
#include "planner_service/search/search_views.h"

namespace stagewright {
namespace pfeife {
namespace {

// What bounds the search. The figures in docs/planners/pfeife.md were taken with these values.
struct Tuning {
  // Vertices of dependency graphs that the phases may visit, or as much work of other kinds: about
  // 10 ns each. Rating all shapes, exploring those that look good, deepening the best, and the
  // warm-ups of the best one.
  static constexpr int64_t kRating = 20'000'000;
  static constexpr int64_t kExploring = 40'000'000;
  static constexpr int64_t kDeepening = 20'000'000;
  static constexpr int64_t kPolishing = 10'000'000;
  // Settings with more pairs of slice and micro-batch are left to those who ask for them: judging
  // one takes about a tenth of a second.
  static constexpr int64_t kMostJudged = 40'000;
  // How many of each shape's best cuts are simulated.
  static constexpr size_t kMostSimulations = 12;
  // Beams over shapes that are explored are narrow and have fewer moves; those over kDeepened of
  // the best shapes, which are searched once more, are wide.
  static constexpr int32_t kNarrow = 6;
  static constexpr int32_t kNarrowReach = 4;
  static constexpr int32_t kWide = 32;
  static constexpr size_t kDeepened = 4;
  // A candidate may use this part of what is left for exploring.
  static constexpr int64_t kCandidateShare = 6;
  // A candidate whose first search ends this many times behind the best is left; a shape of it is
  // searched if the cuts of its best shape are within this factor there.
  static constexpr double kFar = 1.1;
  static constexpr double kNear = 1.02;
  // Settings whose even cuts exceed the memory by this share come last, and only if nothing else
  // fits.
  static constexpr double kHopeless = 0.5;
  // An estimate shorter than this share of the one before is worth a simulation at once.
  static constexpr double kClearly = 0.97;
  // Beyond this share of a device's memory, an excess says nothing of devices.
  static constexpr double kMostExcess = 1e6;
  // Beam entries of one shape that the next one begins with.
  static constexpr size_t kHandedOn = 2;
};

// A setting and a linear order, with what even cuts take in its shapes, best first.
struct Candidate {
  const LoopedSetting* setting = nullptr;
  size_t order = 0;
  ChainModel* model = nullptr;
  std::vector<Finalist> shapes;  // With the micro-batches that are searched with.
};

class PfeifeSearch {
 public:
  PfeifeSearch(const Problem& problem, const PlanOptions& options, SearchContext& context,
               Judge& judge)
      : problem_(problem), options_(options), context_(context), judge_(judge), costs_(problem) {}

  // `explain`: says in found.reason what was lacking if nothing was found.
  absl::Status Run(bool explain, Outcome& found) {
    const bool always = options_.recompute == RecomputePolicy::kAlways;
    RETURN_IF_ERROR(Rounds(always, {}));
    if (!answered() && options_.recompute == RecomputePolicy::kAllowed) {
      RETURN_IF_ERROR(Rounds(true, {}));
    }
    const std::vector<int64_t> sizes = MicroBatches(problem_, options_);
    if (!answered() && options_.micro_batch == 0 && !sizes.empty()) {
      RETURN_IF_ERROR(Rounds(options_.recompute != RecomputePolicy::kNever, sizes.front()));
    }
    found.states += effort_.evaluated + effort_.bounded;
    if (explain && judge_.seconds_to_beat() == 0 && !context_.Expired()) {
      found.reason = Excess();
    }
    return absl::OkStatus();
  }

 private:
  bool answered() const { return judge_.best() != nullptr; }

  // By how much the best cuts exceeded a device's memory, in words; empty if none did, or none
  // could be rated.
  std::string Excess() const {
    const double excess = finalists_.least_excess();
    if (excess <= 0 || excess > Tuning::kMostExcess) return "";
    return absl::StrFormat("the best cuts exceed a device by %.0f %%", excess * 100);
  }

  // Where the evaluator finds more memory than estimated, again with less of it.
  absl::Status Rounds(bool recompute, std::optional<int64_t> samples) {
    return TryMemoryShares(kLoopedShares, [&](double share) -> absl::StatusOr<bool> {
      memory_ = share;
      RETURN_IF_ERROR(Round(recompute, samples));
      return !answered() && finalists_.fit() && !context_.Expired();
    });
  }

  // All settings, with micro-batches of `samples` if given.
  absl::Status Round(bool recompute, std::optional<int64_t> samples) {
    finalists_.clear();
    known_.clear();
    rated_first_ = false;
    const std::vector<LoopedSetting> settings = Judgeable(samples);
    const auto cheapest = std::min_element(
        settings.begin(), settings.end(),
        [&](const LoopedSetting& a, const LoopedSetting& b) { return Pieces(a) < Pieces(b); });
    double excess = 0;
    if (cheapest != settings.end()) RETURN_IF_ERROR(Start(*cheapest, recompute, excess));
    rated_first_ = false;
    std::vector<LoopedSetting> likely, unlikely;
    for (const LoopedSetting& setting : settings) {
      if (context_.Expired()) return absl::OkStatus();
      RETURN_IF_ERROR(Start(setting, recompute, excess));
      (excess <= Tuning::kHopeless ? likely : unlikely).push_back(setting);
    }
    for (const auto& some : {likely, unlikely}) {
      RETURN_IF_ERROR(Explore(some, recompute));
      if (finalists_.fit()) break;
    }
    Allow(Tuning::kDeepening);
    Deepen();
    Allow(Tuning::kPolishing);
    if (finalists_.fit()) Polish(finalists_.best());
    return Simulate();
  }

  // Judges the best so far if it is clearly better than what was reported before: a deadline may
  // come before all is done.
  absl::Status Report() {
    if (!finalists_.fit() || context_.Expired()) return absl::OkStatus();
    const double time = finalists_.best().cuts.time;
    if (answered() && time > Tuning::kClearly * reported_) return absl::OkStatus();
    reported_ = time;
    return Propose(finalists_.best());
  }

  // Searches the cuts of the best shapes with a wider beam.
  void Deepen() {
    std::vector<Finalist> best = finalists_.all();
    if (best.size() > Tuning::kDeepened) best.resize(Tuning::kDeepened);
    for (const Finalist& finalist : best) {
      if (context_.Expired()) return;
      ChainModel& model = *finalist.model;
      const LoopedShape shape = Short(finalist.shape);
      const std::vector<Cuts> found =
          Beam(model, finalist.devices, Tuning::kWide)
              .Run(shape, {finalist.cuts.points, model.EvenTime(shape.slices()),
                           model.EvenMemory(shape.slices())});
      if (!found.empty()) Add(model, finalist.devices, shape, found.front());
    }
  }

  SplitSearch Beam(ChainModel& model, const std::vector<int32_t>& devices, int32_t width) {
    BeamOptions options;
    options.width = width;
    options.memory = memory_;
    if (width <= Tuning::kNarrow) options.reach = Tuning::kNarrowReach;
    return SplitSearch(model, devices, options, context_, effort_);
  }

  ChainModel& ModelFor(const std::vector<int32_t>& order, int64_t samples, bool recompute) {
    std::unique_ptr<ChainModel>& model = models_[std::make_tuple(order, samples, recompute)];
    if (model == nullptr) {
      ModelRules rules;
      rules.recompute = recompute;
      model = std::make_unique<ChainModel>(costs_, order, samples, rules);
    }
    return *model;
  }

  // Pairs of slice and micro-batch.
  int64_t Pieces(const LoopedSetting& setting) const {
    return problem_.mini_batch / setting.samples * static_cast<int64_t>(setting.devices.size()) *
           setting.loops;
  }

  // The settings that are small enough to be simulated, with micro-batches of `samples` if given.
  std::vector<LoopedSetting> Judgeable(std::optional<int64_t> samples) const {
    PlanOptions options = options_;
    if (samples) options.micro_batch = *samples;
    const bool forced = options_.num_stages > 0 || options_.micro_batch > 0;
    std::vector<LoopedSetting> settings = Settings(problem_, options);
    std::erase_if(settings, [&](const LoopedSetting& setting) {
      return Pieces(setting) > (forced ? kMostPieces : Tuning::kMostJudged);
    });
    return settings;
  }

  // Rates even cuts, by how much they exceed the memory at least. The first that fit, of the
  // cheapest setting and of the most promising one, are judged, so that a deadline that comes soon
  // finds an answer.
  absl::Status Start(const LoopedSetting& setting, bool recompute, double& excess) {
    ChainModel& model = ModelFor(problem_.operators->dag().order(), setting.samples, recompute);
    const auto count = static_cast<int32_t>(setting.devices.size());
    const auto few = static_cast<int32_t>(Shortened(problem_.mini_batch / setting.samples, count));
    const LoopedShape shape = MakeShape(count, setting.loops, few, few, 0);
    excess = std::numeric_limits<double>::max();
    for (const auto& points : {model.EvenTime(shape.slices()), model.EvenMemory(shape.slices())}) {
      const std::optional<Cuts> cuts = Beam(model, setting.devices, 1).Rate(shape, points);
      if (!cuts) continue;
      excess = std::min(excess, cuts->excess);
      if (cuts->excess > 0 || rated_first_ || context_.Expired()) continue;
      const int64_t accepted = judge_.accepted();
      RETURN_IF_ERROR(
          Propose(Lengthened({&model, setting.devices, shape, *cuts}, problem_.mini_batch)));
      rated_first_ = judge_.accepted() > accepted;
    }
    return absl::OkStatus();
  }

  void Allow(int64_t passes) { effort_.most_passes = effort_.passes + passes; }
  bool Ended() const { return effort_.passes >= effort_.most_passes || context_.Expired(); }

  // Searches candidates, the most promising first. None may use all that is left.
  absl::Status Explore(const std::vector<LoopedSetting>& settings, bool recompute) {
    const std::vector<Candidate> candidates = Candidates(settings, recompute);
    const int64_t end = effort_.passes + Tuning::kExploring;
    for (const Candidate& candidate : candidates) {
      Allow((end - effort_.passes) / Tuning::kCandidateShare);
      if (Ended()) break;
      ExploreCandidate(candidate);
      RETURN_IF_ERROR(Report());
    }
    return absl::OkStatus();
  }

  // The candidates of as many settings as there is effort for, best first.
  std::vector<Candidate> Candidates(const std::vector<LoopedSetting>& settings, bool recompute) {
    std::vector<Candidate> candidates;
    Allow(Tuning::kRating);
    for (const LoopedSetting& setting : settings) {
      if (Ended()) break;
      const auto slices = static_cast<int32_t>(setting.devices.size()) * setting.loops;
      const auto orders = LinearOrders(costs_, setting.samples, slices);
      for (size_t i = 0; i < orders.size(); ++i) {
        Candidate candidate{&setting, i, &ModelFor(orders[i], setting.samples, recompute), {}};
        RateShapes(candidate);
        if (!candidate.shapes.empty()) candidates.push_back(std::move(candidate));
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return Better(a.shapes.front(), b.shapes.front());
                     });
    return candidates;
  }

  void RateShapes(Candidate& candidate) {
    const std::vector<int32_t>& devices = candidate.setting->devices;
    const auto count = static_cast<int32_t>(devices.size());
    const auto few =
        static_cast<int32_t>(Shortened(problem_.mini_batch / candidate.setting->samples, count));
    SplitSearch search = Beam(*candidate.model, devices, Tuning::kNarrow);
    for (const LoopedShape& shape : Shapes(count, candidate.setting->loops, few)) {
      if (context_.Expired()) break;
      const std::optional<Cuts> cuts =
          search.Rate(shape, candidate.model->EvenTime(shape.slices()));
      if (!cuts) continue;
      candidate.shapes.push_back({candidate.model, devices, shape, *cuts});
      candidate.shapes.back().cuts.time =
          Lengthened(candidate.shapes.back(), problem_.mini_batch).cuts.time;
    }
    std::stable_sort(candidate.shapes.begin(), candidate.shapes.end(), Better);
  }

  // The best cuts of the shapes of a candidate, except of those that are not worth it: known cuts
  // take longer in them, or the candidate is far behind others.
  void ExploreCandidate(const Candidate& candidate) {
    ChainModel& model = *candidate.model;
    const LoopedSetting& setting = *candidate.setting;
    const int64_t all = problem_.mini_batch / setting.samples;
    if (finalists_.fit() &&
        model.LeastTime(setting.devices) * static_cast<double>(all) > finalists_.best().cuts.time) {
      return;
    }
    const auto count = static_cast<int32_t>(setting.devices.size());
    SplitSearch search = Beam(model, setting.devices, Tuning::kNarrow);
    std::vector<std::vector<int32_t>>& known =
        known_[std::make_tuple(candidate.order, count, setting.loops)];
    std::optional<Cuts> best;  // The best cuts of the candidate.
    for (const Finalist& rated : candidate.shapes) {
      if (Ended()) return;
      const LoopedShape& shape = rated.shape;
      if (best && best->excess == 0 &&
          search.TimeOf(shape, best->points) > Tuning::kNear * best->time) {
        continue;
      }
      std::vector<std::vector<int32_t>> starts = known;
      starts.push_back(model.EvenTime(shape.slices()));
      starts.push_back(model.EvenMemory(shape.slices()));
      const std::vector<Cuts> found = search.Run(shape, starts);
      if (found.empty()) continue;
      const double time = Add(model, setting.devices, shape, found.front());
      if (found.front().excess == 0 && time > Tuning::kFar * finalists_.best().cuts.time) return;
      if (best && std::tie(best->excess, best->time) <=
                      std::tie(found.front().excess, found.front().time)) {
        continue;
      }
      best = found.front();
      known.clear();
      for (size_t i = 0; i < std::min(Tuning::kHandedOn, found.size()); ++i) {
        known.push_back(found[i].points);
      }
    }
  }

  // Returns the time of the whole step.
  double Add(ChainModel& model, const std::vector<int32_t>& devices, const LoopedShape& shape,
             const Cuts& cuts) {
    Finalist finalist = Lengthened({&model, devices, shape, cuts}, problem_.mini_batch);
    const double time = finalist.cuts.time;
    finalists_.Add(std::move(finalist));
    return time;
  }

  // Searches the warm-ups of the best, one device after the other, and its cuts again (deviation
  // 6), until neither helps.
  void Polish(const Finalist& best) {
    Finalist polished = best;
    ChainModel& model = *polished.model;
    SplitSearch search = Beam(model, polished.devices, Tuning::kNarrow);
    LoopedShape shape = Short(polished.shape);
    std::vector<Cuts> found = search.Run(shape, {polished.cuts.points});
    bool improved = false;
    for (bool again = true; again && !found.empty() && !context_.Expired();) {
      again = false;
      for (int32_t r = 0; r < shape.devices; ++r) {
        for (int32_t more : {1, 2, 4, -1, -2}) {
          LoopedShape other = shape;
          other.warm_up[r] =
              std::clamp(shape.warm_up[r] + more, 1, shape.loops * shape.micro_batches);
          if (other == shape || context_.Expired()) continue;
          const double time = search.TimeOf(other, found.front().points);
          if (time < 0 || time >= found.front().time) continue;
          std::vector<Cuts> next = search.Run(other, {found.front().points});
          if (next.empty() || next.front().excess > 0) continue;
          if (next.front().time >= found.front().time) continue;
          found = std::move(next);
          shape = std::move(other);
          again = improved = true;
        }
      }
    }
    if (improved) Add(model, polished.devices, shape, found.front());
  }

  // The last word among the finalists that fit, best first.
  absl::Status Simulate() {
    size_t count = 0;
    for (const Finalist& finalist : finalists_.all()) {
      if (finalist.cuts.excess > 0 && answered()) break;
      if (count++ == Tuning::kMostSimulations || context_.Expired()) break;
      RETURN_IF_ERROR(Propose(finalist));
    }
    return absl::OkStatus();
  }

  absl::Status Propose(const Finalist& finalist) {
    const StrategyKind kind =
        options_.sequential ? StrategyKind::kSequential : StrategyKind::kGraph;
    ASSIGN_OR_RETURN(Strategy strategy, BuildStrategy(*finalist.model, finalist.cuts.points,
                                                      finalist.devices, finalist.shape, kind));
    Proposal proposal{std::move(strategy), finalist.cuts.time * 1e-9, ""};
    // Among equal plans the first is kept.
    proposal.text =
        absl::StrCat(absl::Dec(++proposed_, absl::kZeroPad8), " ", ToString(finalist.shape));
    return judge_.Consider({std::move(proposal)}, 1, std::numeric_limits<double>::max());
  }

  const Problem& problem_;
  const PlanOptions& options_;
  SearchContext& context_;
  Judge& judge_;
  OperatorCosts costs_;
  Effort effort_;
  double memory_ = 1;
  double reported_ = std::numeric_limits<double>::max();  // Estimate of what Report judged last.
  std::map<std::tuple<std::vector<int32_t>, int64_t, bool>, std::unique_ptr<ChainModel>> models_;
  std::map<std::tuple<size_t, int32_t, int32_t>, std::vector<std::vector<int32_t>>> known_;
  Finalists finalists_;
  bool rated_first_ = false;  // Start has judged one.
  int64_t proposed_ = 0;
};

class PfeifePlanner : public Planner {
 public:
  std::string name() const override { return "pfeife"; }
  std::string description() const override {
    return "looped pipelines with prefetch, cut by beam search on the critical path (Pfeife, "
           "ICML 2025)";
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    return SearchViews(name(), problem, options, context, options.max_loops,
                       [&](const Problem& seen, Judge& judge, Outcome& found) {
                         return PfeifeSearch(seen, options, context, judge)
                             .Run(/*explain=*/&seen == &problem, found);
                       });
  }
};

}  // namespace
}  // namespace pfeife

std::unique_ptr<Planner> MakePfeifePlanner() { return std::make_unique<pfeife::PfeifePlanner>(); }

}  // namespace stagewright
