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
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/strategy/check_strategy.h"
#include "planner_service/planners/pfeife/build_strategy.h"
#include "planner_service/planners/pfeife/finalist.h"
#include "planner_service/planners/pfeife/phases.h"
#include "planner_service/planners/pfeife/search_space.h"
#include "planner_service/planners/pfeife/settings.h"
#include "planner_service/planners/pfeife/tuning.h"
#include "planner_service/search/memory_shares.h"
#include "planner_service/search/micro_batch_sizes.h"
#include "planner_service/search/search_views.h"

namespace stagewright {
namespace pfeife {
namespace {

// Pairs of slice and micro-batch.
int64_t Pieces(const Problem& problem, const LoopedSetting& setting) {
  return problem.mini_batch / setting.samples * static_cast<int64_t>(setting.devices.size()) *
         setting.loops;
}

// The settings that are small enough to be simulated, with micro-batches of `samples` if given.
std::vector<LoopedSetting> Judgeable(const Problem& problem, const PlanOptions& options,
                                     std::optional<int64_t> samples) {
  PlanOptions own = options;
  if (samples) own.micro_batch = *samples;
  const bool forced = options.num_stages > 0 || options.micro_batch > 0;
  std::vector<LoopedSetting> settings = Settings(problem, own);
  std::erase_if(settings, [&](const LoopedSetting& setting) {
    return Pieces(problem, setting) > (forced ? kMostPieces : Tuning::kMostJudged);
  });
  return settings;
}

// By how much the best cuts exceeded a device's memory, in words; empty if none did, or none could
// be rated.
std::string Excess(double least) {
  if (least <= 0 || least > Tuning::kMostExcess) return "";
  return absl::StrFormat("the best cuts exceed a device by %.0f %%", least * 100);
}

class PfeifeSearch {
 public:
  PfeifeSearch(const Problem& problem, const PlanOptions& options, SearchContext& context,
               Judge& judge)
      : options_(options), judge_(judge), space_(problem, context) {}

  // `explain`: says in found.reason what was lacking if nothing was found.
  absl::Status Run(bool explain, Outcome& found) {
    const bool always = options_.recompute == RecomputePolicy::kAlways;
    RETURN_IF_ERROR(Rounds(always, {}));
    if (!answered() && options_.recompute == RecomputePolicy::kAllowed) {
      RETURN_IF_ERROR(Rounds(true, {}));
    }
    const std::vector<int64_t> sizes = MicroBatches(space_.problem(), options_);
    if (!answered() && options_.micro_batch == 0 && !sizes.empty()) {
      RETURN_IF_ERROR(Rounds(options_.recompute != RecomputePolicy::kNever, sizes.front()));
    }
    found.states += space_.effort().evaluated + space_.effort().bounded;
    if (explain && judge_.seconds_to_beat() == 0 && !expired()) {
      found.reason = Excess(finalists_.least_excess());
    }
    return absl::OkStatus();
  }

 private:
  bool answered() const { return judge_.best() != nullptr; }
  bool expired() const { return space_.context().Expired(); }

  // Where the evaluator finds more memory than estimated, again with less of it.
  absl::Status Rounds(bool recompute, std::optional<int64_t> samples) {
    return TryMemoryShares(kLoopedShares, [&](double share) -> absl::StatusOr<bool> {
      space_.set_memory(share);
      RETURN_IF_ERROR(Round(recompute, samples));
      return !answered() && finalists_.fit() && !expired();
    });
  }

  // All settings, with micro-batches of `samples` if given.
  absl::Status Round(bool recompute, std::optional<int64_t> samples) {
    finalists_.clear();
    known_.clear();
    const std::vector<LoopedSetting> settings = Judgeable(space_.problem(), options_, samples);
    const auto cheapest = std::min_element(
        settings.begin(), settings.end(), [&](const LoopedSetting& a, const LoopedSetting& b) {
          return Pieces(space_.problem(), a) < Pieces(space_.problem(), b);
        });
    double excess = 0;
    bool accepted = false;
    if (cheapest != settings.end()) RETURN_IF_ERROR(Start(*cheapest, recompute, excess, accepted));
    accepted = false;
    std::vector<LoopedSetting> likely, unlikely;
    for (const LoopedSetting& setting : settings) {
      if (expired()) return absl::OkStatus();
      RETURN_IF_ERROR(Start(setting, recompute, excess, accepted));
      (excess <= Tuning::kHopeless ? likely : unlikely).push_back(setting);
    }
    for (const auto& some : {likely, unlikely}) {
      RETURN_IF_ERROR(Explore(some, recompute));
      if (finalists_.fit()) break;
    }
    Deepen(space_, finalists_);
    if (finalists_.fit()) Polish(space_, finalists_);
    return Simulate();
  }

  // Rates even cuts, by how much they exceed the memory at least. The first that fit, of the
  // cheapest setting and of the most promising one, are judged until one is `accepted`, so that a
  // deadline that comes soon finds an answer.
  absl::Status Start(const LoopedSetting& setting, bool recompute, double& excess, bool& accepted) {
    excess = std::numeric_limits<double>::max();
    for (const Finalist& rated : EvenCuts(space_, setting, recompute)) {
      excess = std::min(excess, rated.cuts.excess);
      if (rated.cuts.excess > 0 || accepted || expired()) continue;
      const int64_t before = judge_.accepted();
      RETURN_IF_ERROR(Propose(Lengthened(rated, space_.problem().mini_batch)));
      accepted = judge_.accepted() > before;
    }
    return absl::OkStatus();
  }

  // Searches candidates, the most promising first. None may use all that is left.
  absl::Status Explore(const std::vector<LoopedSetting>& settings, bool recompute) {
    const std::vector<Candidate> candidates = RateCandidates(space_, settings, recompute);
    const int64_t end = space_.effort().passes + Tuning::kExploring;
    for (const Candidate& candidate : candidates) {
      space_.Allow((end - space_.effort().passes) / Tuning::kCandidateShare);
      if (space_.Ended()) break;
      ExploreCandidate(space_, candidate, known_, finalists_);
      RETURN_IF_ERROR(Report());
    }
    return absl::OkStatus();
  }

  // Judges the best so far if it is clearly better than what was reported before: a deadline may
  // come before all is done.
  absl::Status Report() {
    if (!finalists_.fit() || expired()) return absl::OkStatus();
    const double time = finalists_.best().cuts.time;
    if (answered() && time > Tuning::kClearly * reported_) return absl::OkStatus();
    reported_ = time;
    return Propose(finalists_.best());
  }

  // The last word among the finalists that fit, best first.
  absl::Status Simulate() {
    size_t count = 0;
    for (const Finalist& finalist : finalists_.all()) {
      if (finalist.cuts.excess > 0 && answered()) break;
      if (count++ == Tuning::kMostSimulations || expired()) break;
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

  const PlanOptions& options_;
  Judge& judge_;
  SearchSpace space_;
  KnownCuts known_;
  Finalists finalists_;
  double reported_ = std::numeric_limits<double>::max();  // Estimate of what Report judged last.
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
