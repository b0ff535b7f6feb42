#include "planner_service/search/moves.h"

#include <algorithm>
#include <utility>

#include "common/graph/series_parallel.h"
#include "planner_service/planner/whole_batch.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

// Every pair of devices exchanges at one rate, and all devices are alike.
bool IsUniform(const Cluster& cluster) {
  if (!cluster.Homogeneous()) return false;
  for (int32_t a = 0; a < cluster.size(); ++a) {
    for (int32_t b = 0; b < cluster.size(); ++b) {
      if (a == b) continue;
      const Route& first = cluster.route(DeviceId(0), DeviceId(1));
      const Route& route = cluster.route(DeviceId(a), DeviceId(b));
      if (route.latency != first.latency || route.bytes_per_second != first.bytes_per_second ||
          route.links.size() > 1) {
        return false;
      }
    }
  }
  return true;
}

void Insert(std::vector<int32_t>& sorted, int32_t item) {
  sorted.insert(std::lower_bound(sorted.begin(), sorted.end(), item), item);
}

void Erase(std::vector<int32_t>& sorted, int32_t item) {
  sorted.erase(std::lower_bound(sorted.begin(), sorted.end(), item));
}

bool Contains(const std::vector<int32_t>& items, int32_t item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace

Moves::Moves(const OperatorCosts& costs, const PlanOptions& options)
    : costs_(costs), options_(options) {
  const Problem& problem = costs.problem();
  edges_ = problem.operators->dag().Edges();
  const std::vector<int32_t> order = Linearize(Decompose(problem.operators->dag()));
  rank_.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) rank_[order[i]] = static_cast<int32_t>(i);
  micro_batches_ = MicroBatchSizes(problem, options, Rounding::kUp);
  whole_ = WholeOperators(problem);
  alike_ = FindAlikeBranches(costs);
  uniform_ = IsUniform(*problem.cluster);
}

bool Moves::Allowed(const Draft& draft) const {
  const auto stages = static_cast<int32_t>(draft.stages.size());
  if (options_.num_stages > 0 && stages != options_.num_stages) return false;
  if (options_.max_stages > 0 && stages > options_.max_stages) return false;
  if (options_.micro_batch > 0 && draft.micro_batch != options_.micro_batch) return false;
  if (options_.sequential && draft.kind != StrategyKind::kSequential) return false;
  std::vector<int32_t> loops(costs_.problem().cluster->size(), 0);
  for (const DraftStage& stage : draft.stages) {
    if (static_cast<int64_t>(stage.devices.size()) >
        MostReplicas(costs_.problem(), options_, draft.micro_batch)) {
      return false;
    }
    const bool split = stage.devices.size() > 1 || draft.micro_batch < costs_.problem().mini_batch;
    if (split && std::any_of(stage.operators.begin(), stage.operators.end(),
                             [&](int32_t op) { return whole_[op]; })) {
      return false;
    }
    if (stage.recompute && options_.recompute == RecomputePolicy::kNever) return false;
    if (!stage.recompute && options_.recompute == RecomputePolicy::kAlways) return false;
    for (int32_t d : stage.devices) ++loops[d];
  }
  return options_.max_loops == 0 || std::all_of(loops.begin(), loops.end(),
                                                [&](int32_t n) { return n <= options_.max_loops; });
}

int32_t Moves::StageOf(const Draft& draft, int32_t op) const {
  for (size_t s = 0; s < draft.stages.size(); ++s) {
    const std::vector<int32_t>& own = draft.stages[s].operators;
    if (std::binary_search(own.begin(), own.end(), op)) return static_cast<int32_t>(s);
  }
  return -1;
}

std::vector<int32_t> Moves::ByRank(std::vector<int32_t> operators) const {
  std::sort(operators.begin(), operators.end(),
            [&](int32_t a, int32_t b) { return rank_[a] < rank_[b]; });
  return operators;
}

// The stage with the busiest device among three that are drawn.
int32_t Moves::BusyStage(const ListResult& last, RandomSource& random, const Draft& draft) const {
  const auto busy = [&](int32_t s) {
    Nanos most = 0;
    for (int32_t d : draft.stages[s].devices) most = std::max(most, last.busy[d]);
    return most;
  };
  int32_t best = random.Below(draft.stages.size());
  for (int32_t i = 0; i < 2; ++i) {
    const int32_t other = random.Below(draft.stages.size());
    if (busy(other) > busy(best)) best = other;
  }
  return best;
}

// The device with less to do among two that are drawn.
int32_t Moves::IdleDevice(const ListResult& last, RandomSource& random) const {
  const int32_t a = random.Below(last.busy.size());
  const int32_t b = random.Below(last.busy.size());
  return last.busy[b] < last.busy[a] ? b : a;
}

// Operators over an edge between two stages, from one end to the other.
bool Moves::Shift(RandomSource& random, Draft& draft) const {
  if (edges_.empty()) return false;
  const auto [from, to] = edges_[random.Below(edges_.size())];
  const int32_t a = StageOf(draft, from);
  const int32_t b = StageOf(draft, to);
  if (a == b) return false;
  const bool forwards = random.OneIn(2);
  DraftStage& giver = draft.stages[forwards ? a : b];
  DraftStage& taker = draft.stages[forwards ? b : a];
  std::vector<int32_t> own = ByRank(giver.operators);
  if (!forwards) std::reverse(own.begin(), own.end());  // The end that is moved comes last.
  // A run that ends at the edge's operator.
  const auto at = std::find(own.begin(), own.end(), forwards ? from : to) - own.begin();
  const auto run = 1 + (random.OneIn(3) ? random.Below(static_cast<size_t>(at) + 1) : 0);
  for (auto i = at - run + 1; i <= at; ++i) {
    Erase(giver.operators, own[i]);
    Insert(taker.operators, own[i]);
  }
  if (giver.operators.empty()) draft.stages.erase(draft.stages.begin() + (forwards ? a : b));
  return true;
}

bool Moves::Reassign(const ListResult& last, RandomSource& random, Draft& draft) const {
  DraftStage& stage = draft.stages[BusyStage(last, random, draft)];
  const int32_t device = IdleDevice(last, random);
  if (Contains(stage.devices, device)) return false;
  stage.devices[random.Below(stage.devices.size())] = device;
  return true;
}

bool Moves::Exchange(RandomSource& random, Draft& draft) const {
  DraftStage& a = draft.stages[random.Below(draft.stages.size())];
  DraftStage& b = draft.stages[random.Below(draft.stages.size())];
  if (a.devices == b.devices) return false;
  std::swap(a.devices, b.devices);
  return true;
}

// One operator or a run of them at the end of a stage becomes a stage elsewhere.
bool Moves::Split(const ListResult& last, RandomSource& random, Draft& draft) const {
  const int32_t s = BusyStage(last, random, draft);
  const std::vector<int32_t> own = ByRank(draft.stages[s].operators);
  if (own.size() < 2) return false;
  const auto cut = 1 + random.Below(own.size() - 1);
  DraftStage rest = draft.stages[s];
  draft.stages[s].operators.assign(own.begin(), own.begin() + cut);
  rest.operators.assign(own.begin() + cut, own.end());
  std::sort(draft.stages[s].operators.begin(), draft.stages[s].operators.end());
  std::sort(rest.operators.begin(), rest.operators.end());
  if (!random.OneIn(3)) {
    DraftStage& moved = random.OneIn(2) ? rest : draft.stages[s];
    const int32_t device = IdleDevice(last, random);
    if (moved.devices.size() == 1) moved.devices[0] = device;
  }
  draft.stages.insert(draft.stages.begin() + s + 1, std::move(rest));
  return true;
}

bool Moves::Extract(const ListResult& last, RandomSource& random, Draft& draft) const {
  const int32_t s = BusyStage(last, random, draft);
  DraftStage& stage = draft.stages[s];
  if (stage.operators.size() < 2) return false;
  DraftStage one = stage;
  const int32_t op = stage.operators[random.Below(stage.operators.size())];
  one.operators = {op};
  Erase(stage.operators, op);
  const int32_t device = IdleDevice(last, random);
  // Into a stage that is there already, or a stage of its own.
  if (random.OneIn(2)) {
    for (size_t t = 0; t < draft.stages.size(); ++t) {
      if (static_cast<int32_t>(t) == s || !Contains(draft.stages[t].devices, device)) continue;
      Insert(draft.stages[t].operators, op);
      return true;
    }
  }
  one.devices = {device};
  const bool first = rank_[op] < rank_[stage.operators.front()];
  draft.stages.insert(draft.stages.begin() + s + (first ? 0 : 1), std::move(one));
  return true;
}

bool Moves::Merge(RandomSource& random, Draft& draft) const {
  if (draft.stages.size() < 2 || edges_.empty()) return false;
  int32_t a = random.Below(draft.stages.size());
  int32_t b = a;
  if (random.OneIn(2)) {
    const auto [from, to] = edges_[random.Below(edges_.size())];
    a = StageOf(draft, from);
    b = StageOf(draft, to);
  } else {
    b = random.Below(draft.stages.size());
    if (draft.stages[a].devices != draft.stages[b].devices) return false;
  }
  if (a == b) return false;
  if (random.OneIn(2)) std::swap(a, b);
  for (int32_t op : draft.stages[b].operators) Insert(draft.stages[a].operators, op);
  draft.stages.erase(draft.stages.begin() + b);
  return true;
}

bool Moves::Replicate(const ListResult& last, RandomSource& random, Draft& draft) const {
  if (!options_.allow_replicas) return false;
  DraftStage& stage = draft.stages[BusyStage(last, random, draft)];
  const int32_t device = IdleDevice(last, random);
  switch (random.Below(4)) {
    case 0:
    case 1:  // One more.
      if (Contains(stage.devices, device)) return false;
      stage.devices.push_back(device);
      break;
    case 2:  // One less.
      if (stage.devices.size() < 2) return false;
      stage.devices.erase(stage.devices.begin() + random.Below(stage.devices.size()));
      break;
    default: {  // Those of another stage, or both stages' together.
      const DraftStage& other = draft.stages[random.Below(draft.stages.size())];
      if (random.OneIn(2)) {
        stage.devices = other.devices;
      } else {
        for (int32_t d : other.devices) {
          if (!Contains(stage.devices, d)) stage.devices.push_back(d);
        }
      }
    }
  }
  return true;
}

// Two devices change places in all stages.
bool Moves::Permute(RandomSource& random, Draft& draft) const {
  const auto devices = static_cast<size_t>(costs_.problem().cluster->size());
  const int32_t a = random.Below(devices);
  const int32_t b = random.Below(devices);
  if (a == b) return false;
  for (DraftStage& stage : draft.stages) {
    for (int32_t& d : stage.devices) {
      if (d == a || d == b) d = a + b - d;
    }
  }
  return true;
}

bool Moves::Recompute(RandomSource& random, Draft& draft) const {
  if (options_.recompute != RecomputePolicy::kAllowed) return false;
  bool& recompute = draft.stages[random.Below(draft.stages.size())].recompute;
  recompute = !recompute;
  return true;
}

bool Moves::ChangeMicroBatch(RandomSource& random, Draft& draft) const {
  if (micro_batches_.empty()) return false;
  const int64_t size = micro_batches_[random.Below(micro_batches_.size())];
  if (size == draft.micro_batch) return false;
  draft.micro_batch = size;
  const int64_t most = MostReplicas(costs_.problem(), options_, size);
  for (DraftStage& stage : draft.stages) {
    if (static_cast<int64_t>(stage.devices.size()) > most) stage.devices.resize(most);
  }
  return true;
}

bool Moves::Change(const ListResult& last, RandomSource& random, Draft& draft) const {
  bool done = false;
  const int32_t draw = random.Below(100);
  if (draw < 26) {
    done = Shift(random, draft);
  } else if (draw < 42) {
    done = Reassign(last, random, draft);
  } else if (draw < 54) {
    done = Exchange(random, draft);
  } else if (draw < 64) {
    done = Split(last, random, draft);
  } else if (draw < 72) {
    done = Extract(last, random, draft);
  } else if (draw < 80) {
    done = Merge(random, draft);
  } else if (draw < 92) {
    done = Replicate(last, random, draft);
  } else if (draw < 95) {
    done = ChangeMicroBatch(random, draft);
  } else if (draw < 97 || uniform_) {
    done = Recompute(random, draft);
  } else {
    done = Permute(random, draft);
  }
  return done && Allowed(draft) && SortStages(costs_.problem().operators->dag(), draft);
}

// A stage with several devices, or operators at an end of it, keeps only some of these.
bool Moves::Narrow(const ListResult& last, RandomSource& random, Draft& draft) const {
  const int32_t s = BusyStage(last, random, draft);
  if (draft.stages[s].devices.size() < 2) return false;
  DraftStage rest = draft.stages[s];
  const std::vector<int32_t> own = ByRank(rest.operators);
  const auto cut = own.size() < 2 || random.OneIn(3) ? 0 : 1 + random.Below(own.size() - 1);
  const bool front = cut > 0 && random.OneIn(2);
  DraftStage& stage = draft.stages[s];
  stage.operators.assign(own.begin(), own.begin() + cut);
  rest.operators.assign(own.begin() + cut, own.end());
  std::sort(stage.operators.begin(), stage.operators.end());
  std::sort(rest.operators.begin(), rest.operators.end());
  std::vector<int32_t>& devices = front ? stage.devices : rest.devices;
  const auto kept = 1 + random.Below(devices.size() - 1);
  while (static_cast<int32_t>(devices.size()) > kept) {
    devices.erase(devices.begin() + random.Below(devices.size()));
  }
  if (cut == 0) {
    stage = std::move(rest);
  } else {
    draft.stages.insert(draft.stages.begin() + s + 1, std::move(rest));
  }
  return true;
}

bool Moves::ChangeWidely(const ListResult& last, RandomSource& random, Draft& draft) const {
  if (!random.OneIn(5)) return Change(last, random, draft);
  return Narrow(last, random, draft) && Allowed(draft) &&
         SortStages(costs_.problem().operators->dag(), draft);
}

bool Moves::ExchangeReplicas(RandomSource& random, Draft& draft) const {
  std::vector<int32_t>& devices = draft.stages[random.Below(draft.stages.size())].devices;
  if (devices.size() < 2) return false;
  std::swap(devices[random.Below(devices.size())], devices[random.Below(devices.size())]);
  return true;
}

bool Moves::ChangeAlike(const ListResult& last, RandomSource& random, Draft& draft) const {
  const Draft before = draft;
  const bool replicas = !uniform_ && random.OneIn(10);
  if (!(replicas ? ExchangeReplicas(random, draft) : Change(last, random, draft))) return false;
  if (random.OneIn(2)) return true;
  Draft all = draft;
  const MirrorTo to = random.OneIn(3) ? MirrorTo::kAll : MirrorTo::kAlike;
  if (Mirror(alike_, before, to, costs_.problem().cluster->size(), all) && Allowed(all) &&
      SortStages(costs_.problem().operators->dag(), all)) {
    draft = std::move(all);
  }
  return true;
}

}  // namespace stagewright
