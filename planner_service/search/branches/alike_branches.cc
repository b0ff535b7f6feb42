#include "planner_service/search/branches/alike_branches.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/graph/series_parallel.h"
#include "planner_service/search/canonical_operators.h"

namespace stagewright {
namespace {

constexpr int32_t kNone = -1;

std::vector<int32_t> OperatorsOf(const SpTree& tree, int32_t vertex) {
  std::vector<int32_t> operators = LeavesOf(tree, vertex);
  std::sort(operators.begin(), operators.end());
  return operators;
}

// The stage of every operator.
std::vector<int32_t> StagesOf(const Draft& draft, int32_t operators) {
  std::vector<int32_t> stages(operators, kNone);
  for (size_t s = 0; s < draft.stages.size(); ++s) {
    for (int32_t op : draft.stages[s].operators) stages[op] = static_cast<int32_t>(s);
  }
  return stages;
}

// Where devices of one branch have their counterparts in another.
using DeviceMap = std::map<int32_t, int32_t>;

// From the layout of both branches; nothing if these are not laid out alike.
std::optional<DeviceMap> Counterparts(const Draft& draft, const std::vector<int32_t>& stages,
                                      const std::vector<int32_t>& from,
                                      const std::vector<int32_t>& to) {
  DeviceMap map;
  for (size_t place = 0; place < from.size(); ++place) {
    const std::vector<int32_t>& a = draft.stages[stages[from[place]]].devices;
    const std::vector<int32_t>& b = draft.stages[stages[to[place]]].devices;
    if (a.size() != b.size()) return std::nullopt;
    for (size_t r = 0; r < a.size(); ++r) {
      if (map.emplace(a[r], b[r]).first->second != b[r]) return std::nullopt;
    }
  }
  return map;
}

// First device to first device.
DeviceMap FirstToFirst(const Draft& draft, const std::vector<int32_t>& stages,
                       const std::vector<int32_t>& from, const std::vector<int32_t>& to) {
  const auto first = [&](const std::vector<int32_t>& branch) {
    int32_t least = draft.stages[stages[branch.front()]].devices.front();
    for (int32_t op : branch) {
      for (int32_t d : draft.stages[stages[op]].devices) least = std::min(least, d);
    }
    return least;
  };
  return {{first(from), first(to)}};
}

// The counterpart of a device; kNone if it lies outside the cluster.
int32_t Counterpart(const DeviceMap& map, int32_t device, int32_t devices) {
  const auto known = map.find(device);
  if (known != map.end()) return known->second;
  const auto* nearest = &*map.begin();
  for (const auto& pair : map) {
    if (std::abs(pair.first - device) < std::abs(nearest->first - device)) nearest = &pair;
  }
  const int32_t other = nearest->second + device - nearest->first;
  return 0 <= other && other < devices ? other : kNone;
}

// By operator: whether its stage is another one than before.
std::vector<bool> Changed(const Draft& before, const std::vector<int32_t>& old_stages,
                          const Draft& after) {
  std::vector<bool> changed(old_stages.size(), false);
  for (const DraftStage& stage : after.stages) {
    if (stage == before.stages[old_stages[stage.operators.front()]]) continue;
    for (int32_t op : stage.operators) changed[op] = true;
  }
  return changed;
}

// The only branch of the set with operators in stages that changed.
int32_t ChangedBranch(const AlikeBranches& set, const std::vector<bool>& changed) {
  int32_t found = kNone;
  for (size_t b = 0; b < set.size(); ++b) {
    if (std::none_of(set[b].begin(), set[b].end(), [&](int32_t op) { return changed[op]; })) {
      continue;
    }
    if (found != kNone) return kNone;
    found = static_cast<int32_t>(b);
  }
  return found;
}

// A stage's part of a branch.
struct Piece {
  int32_t stage;
  bool shared;  // The stage has other operators, too, of no branch of the set.
  std::vector<int32_t> places;
};

// By stage; nothing if a stage has operators of another branch of the set as well.
std::optional<std::vector<Piece>> PiecesOf(const AlikeBranches& set, int32_t branch,
                                           const Draft& draft, const std::vector<int32_t>& stages) {
  std::map<int32_t, std::vector<int32_t>> places;
  for (size_t place = 0; place < set[branch].size(); ++place) {
    places[stages[set[branch][place]]].push_back(static_cast<int32_t>(place));
  }
  std::vector<Piece> pieces;
  for (auto& [stage, own] : places) {
    const bool shared = own.size() < draft.stages[stage].operators.size();
    pieces.push_back({stage, shared, std::move(own)});
  }
  for (size_t other = 0; other < set.size(); ++other) {
    if (static_cast<int32_t>(other) == branch) continue;
    for (int32_t op : set[other]) {
      if (places.count(stages[op]) > 0) return std::nullopt;
    }
  }
  return pieces;
}

// What a branch becomes that is laid out as another one is.
struct Copy {
  std::vector<DraftStage> own;  // Stages of the branch alone.
  // Operators, each with the stage of others that it joins.
  std::vector<std::pair<int32_t, int32_t>> joining;
};

// Nothing if counterparts of devices lie outside the cluster or are not different ones.
std::optional<Copy> CopyOf(const std::vector<Piece>& pieces, const Draft& draft,
                           const std::vector<int32_t>& branch, const DeviceMap& map,
                           int32_t devices) {
  Copy copy;
  for (const Piece& piece : pieces) {
    if (piece.shared) {
      for (int32_t place : piece.places) copy.joining.emplace_back(branch[place], piece.stage);
      continue;
    }
    const DraftStage& model = draft.stages[piece.stage];
    DraftStage stage{{}, {}, model.recompute};
    for (int32_t place : piece.places) stage.operators.push_back(branch[place]);
    std::set<int32_t> different;
    for (int32_t d : model.devices) {
      stage.devices.push_back(Counterpart(map, d, devices));
      if (stage.devices.back() == kNone || !different.insert(stage.devices.back()).second) {
        return std::nullopt;
      }
    }
    copy.own.push_back(std::move(stage));
  }
  return copy;
}

void Apply(std::vector<Copy>& copies, int32_t operators, Draft& draft) {
  std::vector<bool> moved(operators, false);
  for (const Copy& copy : copies) {
    for (const auto& [op, stage] : copy.joining) moved[op] = true;
    for (const DraftStage& stage : copy.own) {
      for (int32_t op : stage.operators) moved[op] = true;
    }
  }
  for (DraftStage& stage : draft.stages) {
    std::erase_if(stage.operators, [&](int32_t op) { return moved[op]; });
  }
  for (Copy& copy : copies) {
    for (const auto& [op, stage] : copy.joining) {
      std::vector<int32_t>& taker = draft.stages[stage].operators;
      taker.insert(std::lower_bound(taker.begin(), taker.end(), op), op);
    }
  }
  for (Copy& copy : copies) {
    std::move(copy.own.begin(), copy.own.end(), std::back_inserter(draft.stages));
  }
  std::erase_if(draft.stages, [](const DraftStage& stage) { return stage.operators.empty(); });
}

}  // namespace

std::vector<AlikeBranches> FindAlikeBranches(const OperatorCosts& costs) {
  const Dag& dag = costs.problem().operators->dag();
  const SpTree tree = Decompose(dag);
  const std::vector<uint64_t> colours = OperatorColours(costs);
  std::vector<AlikeBranches> sets;
  std::vector<int32_t> open = {tree.root()};
  while (!open.empty()) {
    const SpTree::Vertex& vertex = tree.vertices[open.back()];
    open.pop_back();
    if (vertex.kind != SpTree::Kind::kParallel) {
      open.insert(open.end(), vertex.children.begin(), vertex.children.end());
      continue;
    }
    std::map<std::vector<uint64_t>, std::pair<AlikeBranches, std::vector<int32_t>>> alike;
    for (int32_t child : vertex.children) {
      std::vector<int32_t> own = OperatorsOf(tree, child);
      std::vector<uint64_t> signature;
      for (int32_t op : own) signature.push_back(colours[op]);
      auto& [branches, children] = alike[signature];
      branches.push_back(std::move(own));
      children.push_back(child);
    }
    for (auto& [signature, found] : alike) {
      auto& [branches, children] = found;
      if (branches.size() > 1) {
        sets.push_back(std::move(branches));
      } else {
        open.push_back(children.front());
      }
    }
  }
  std::sort(sets.begin(), sets.end());
  return sets;
}

bool Mirror(const std::vector<AlikeBranches>& sets, const Draft& before, MirrorTo to,
            int32_t devices, Draft& after) {
  int32_t operators = 0;
  for (const DraftStage& stage : before.stages) {
    operators += static_cast<int32_t>(stage.operators.size());
  }
  const std::vector<int32_t> old_stages = StagesOf(before, operators);
  const std::vector<bool> changed = Changed(before, old_stages, after);
  std::vector<Copy> copies;
  for (const AlikeBranches& set : sets) {
    const int32_t branch = ChangedBranch(set, changed);
    if (branch == kNone) continue;
    const auto pieces = PiecesOf(set, branch, after, StagesOf(after, operators));
    if (!pieces.has_value()) continue;
    for (int32_t other = 0; other < static_cast<int32_t>(set.size()); ++other) {
      if (other == branch) continue;
      std::optional<DeviceMap> map = Counterparts(before, old_stages, set[branch], set[other]);
      if (!map.has_value() && to == MirrorTo::kAlike) continue;
      if (!map.has_value()) map = FirstToFirst(before, old_stages, set[branch], set[other]);
      if (auto copy = CopyOf(*pieces, after, set[other], *map, devices)) {
        copies.push_back(*std::move(copy));
      }
    }
  }
  if (copies.empty()) return false;
  Apply(copies, operators, after);
  return true;
}

}  // namespace stagewright
