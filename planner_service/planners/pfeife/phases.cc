#include "planner_service/planners/pfeife/phases.h"

#include <algorithm>
#include <utility>

#include "planner_service/planners/pfeife/linear_orders.h"
#include "planner_service/planners/pfeife/tuning.h"

namespace stagewright::pfeife {
namespace {

// Micro-batches that the shapes of a setting are searched with.
int32_t FewMicroBatches(const Problem& problem, const LoopedSetting& setting) {
  const auto devices = static_cast<int32_t>(setting.devices.size());
  return static_cast<int32_t>(Shortened(problem.mini_batch / setting.samples, devices));
}

// Returns the time of the whole step.
double AddTo(Finalists& finalists, SearchSpace& space, Finalist found) {
  Finalist finalist = Lengthened(std::move(found), space.problem().mini_batch);
  const double time = finalist.cuts.time;
  finalists.Add(std::move(finalist));
  return time;
}

// What cuts of equal time take in each shape of the candidate, best first.
std::vector<Finalist> RateShapes(SearchSpace& space, const Candidate& candidate) {
  const std::vector<int32_t>& devices = candidate.setting.devices;
  SplitSearch search = space.Beam(*candidate.model, devices, Tuning::kNarrow);
  std::vector<Finalist> rated;
  for (const LoopedShape& shape :
       Shapes(static_cast<int32_t>(devices.size()), candidate.setting.loops,
              FewMicroBatches(space.problem(), candidate.setting))) {
    if (space.context().Expired()) break;
    const std::optional<Cuts> cuts = search.Rate(shape, candidate.model->EvenTime(shape.slices()));
    if (!cuts) continue;
    Finalist& one = rated.emplace_back(Finalist{candidate.model, devices, shape, *cuts});
    one.cuts.time = Lengthened(one, space.problem().mini_batch).cuts.time;
  }
  std::stable_sort(rated.begin(), rated.end(), Better);
  return rated;
}

// A shape whose warm-ups are searched, and the beam over its cuts, best first.
struct Polished {
  LoopedShape shape;
  std::vector<Cuts> found;
};

// Tries a few warm-ups of one device and keeps those that are better; whether there was one.
bool PolishDevice(SearchSpace& space, SplitSearch& search, int32_t device, Polished& best) {
  bool improved = false;
  for (const int32_t more : {1, 2, 4, -1, -2}) {
    LoopedShape other = best.shape;
    other.warm_up[device] = std::clamp(best.shape.warm_up[device] + more, 1,
                                       best.shape.loops * best.shape.micro_batches);
    if (other == best.shape || space.context().Expired()) continue;
    const double time = search.TimeOf(other, best.found.front().points);
    if (time < 0 || time >= best.found.front().time) continue;
    std::vector<Cuts> next = search.Run(other, {best.found.front().points});
    if (next.empty() || next.front().excess > 0) continue;
    if (next.front().time >= best.found.front().time) continue;
    best = {std::move(other), std::move(next)};
    improved = true;
  }
  return improved;
}

}  // namespace

std::vector<Finalist> EvenCuts(SearchSpace& space, const LoopedSetting& setting, bool recompute) {
  const Problem& problem = space.problem();
  ChainModel& model = space.ModelFor(problem.operators->dag().order(), setting.samples, recompute);
  const int32_t few = FewMicroBatches(problem, setting);
  const LoopedShape shape =
      MakeShape(static_cast<int32_t>(setting.devices.size()), setting.loops, few, few, 0);
  std::vector<Finalist> rated;
  for (const auto& points : {model.EvenTime(shape.slices()), model.EvenMemory(shape.slices())}) {
    const std::optional<Cuts> cuts = space.Beam(model, setting.devices, 1).Rate(shape, points);
    if (cuts) rated.push_back({&model, setting.devices, shape, *cuts});
  }
  return rated;
}

std::vector<Candidate> RateCandidates(SearchSpace& space,
                                      const std::vector<LoopedSetting>& settings, bool recompute) {
  std::vector<Candidate> candidates;
  space.Allow(Tuning::kRating);
  for (const LoopedSetting& setting : settings) {
    if (space.Ended()) break;
    const auto slices = static_cast<int32_t>(setting.devices.size()) * setting.loops;
    const auto orders = LinearOrders(space.costs(), setting.samples, slices);
    for (size_t i = 0; i < orders.size(); ++i) {
      Candidate candidate{setting, i, &space.ModelFor(orders[i], setting.samples, recompute), {}};
      candidate.shapes = RateShapes(space, candidate);
      if (!candidate.shapes.empty()) candidates.push_back(std::move(candidate));
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return Better(a.shapes.front(), b.shapes.front());
                   });
  return candidates;
}

void ExploreCandidate(SearchSpace& space, const Candidate& candidate, KnownCuts& known_cuts,
                      Finalists& finalists) {
  ChainModel& model = *candidate.model;
  const LoopedSetting& setting = candidate.setting;
  const int64_t all = space.problem().mini_batch / setting.samples;
  if (finalists.fit() &&
      model.LeastTime(setting.devices) * static_cast<double>(all) > finalists.best().cuts.time) {
    return;
  }
  const auto count = static_cast<int32_t>(setting.devices.size());
  SplitSearch search = space.Beam(model, setting.devices, Tuning::kNarrow);
  std::vector<std::vector<int32_t>>& known =
      known_cuts[std::make_tuple(candidate.order, count, setting.loops)];
  std::optional<Cuts> best;  // The best cuts of the candidate.
  for (const Finalist& rated : candidate.shapes) {
    if (space.Ended()) return;
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
    const double time = AddTo(finalists, space, {&model, setting.devices, shape, found.front()});
    if (found.front().excess == 0 && time > Tuning::kFar * finalists.best().cuts.time) return;
    if (best &&
        std::tie(best->excess, best->time) <= std::tie(found.front().excess, found.front().time)) {
      continue;
    }
    best = found.front();
    known.clear();
    for (size_t i = 0; i < std::min(Tuning::kHandedOn, found.size()); ++i) {
      known.push_back(found[i].points);
    }
  }
}

void Deepen(SearchSpace& space, Finalists& finalists) {
  space.Allow(Tuning::kDeepening);
  std::vector<Finalist> best = finalists.all();
  if (best.size() > Tuning::kDeepened) best.resize(Tuning::kDeepened);
  for (const Finalist& finalist : best) {
    if (space.context().Expired()) return;
    ChainModel& model = *finalist.model;
    const LoopedShape shape = Short(finalist.shape);
    const std::vector<Cuts> found =
        space.Beam(model, finalist.devices, Tuning::kWide)
            .Run(shape, {finalist.cuts.points, model.EvenTime(shape.slices()),
                         model.EvenMemory(shape.slices())});
    if (!found.empty()) AddTo(finalists, space, {&model, finalist.devices, shape, found.front()});
  }
}

void Polish(SearchSpace& space, Finalists& finalists) {
  space.Allow(Tuning::kPolishing);
  const Finalist best = finalists.best();
  SplitSearch search = space.Beam(*best.model, best.devices, Tuning::kNarrow);
  Polished polished{Short(best.shape), {}};
  polished.found = search.Run(polished.shape, {best.cuts.points});
  bool improved = false;
  for (bool again = true; again && !polished.found.empty() && !space.context().Expired();) {
    again = false;
    for (int32_t r = 0; r < polished.shape.devices; ++r) {
      again |= PolishDevice(space, search, r, polished);
    }
    improved |= again;
  }
  if (!improved) return;
  AddTo(finalists, space, {best.model, best.devices, polished.shape, polished.found.front()});
}

}  // namespace stagewright::pfeife
