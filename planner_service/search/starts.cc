#include "planner_service/search/starts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "common/graph/series_parallel.h"
#include "planner_service/planner/whole_batch.h"
#include "planner_service/search/branches/own_devices.h"
#include "planner_service/search/branches/packed_devices.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

// A run of operators with less than this share of what a group has to do is not cut.
constexpr double kWorthCutting = 0.5;
// Slices of a group: more than a few only where these are few for all groups together, as where
// every device holds the whole model and the sums of one slice's gradients hide behind the others.
constexpr int32_t kFewLoops = 4;
constexpr int32_t kMostLoops = 32;
constexpr int32_t kMostSlices = 64;
// Groups, at most: nobody fills longer pipelines.
constexpr int32_t kMostGroups = 64;

enum class Placement { kInterleaved, kVShaped };

// Where the operators are that all branches share (forks, joins): in one of the groups; on a device
// of every node, so that the ports of all nodes carry what a join reads, apart from the groups or
// beside what these run there; or on all devices.
enum class Shared { kInGroups, kOfEveryNode, kBesideGroups, kOnAll };

struct Shape {
  int32_t replicas = 1;  // Devices per group.
  int64_t micro_batch = 1;
  int32_t loops = 1;
  Placement placement = Placement::kInterleaved;
  Shared shared = Shared::kInGroups;
  bool rest = false;  // The devices that are too few for one more group are a group, too.
};

// The last device of every node; empty unless nodes have several.
std::vector<int32_t> OneOfEveryNode(const Cluster& cluster) {
  std::map<int32_t, int32_t> last;
  for (int32_t d = 0; d < cluster.size(); ++d) last[cluster.device(DeviceId(d)).node] = d;
  std::vector<int32_t> devices;
  if (static_cast<int32_t>(last.size()) == cluster.size() || last.size() < 2) return devices;
  for (const auto& [node, d] : last) devices.push_back(d);
  return devices;
}

// Lays the operators out for one shape.
class Layout {
 public:
  Layout(const OperatorCosts& costs, const SpTree& tree, const Shape& shape)
      : costs_(costs), tree_(tree), shape_(shape), whole_(WholeOperators(costs.problem())) {
    const Cluster& cluster = *costs.problem().cluster;
    if (shape.shared == Shared::kOfEveryNode) shared_ = OneOfEveryNode(cluster);
    std::vector<int32_t> rest;
    for (int32_t d = 0; d < cluster.size(); ++d) {
      if (!std::binary_search(shared_.begin(), shared_.end(), d)) rest.push_back(d);
    }
    if (shape.shared == Shared::kBesideGroups) shared_ = OneOfEveryNode(cluster);
    if (shape.shared == Shared::kOnAll) shared_ = rest;
    const auto replicas = static_cast<size_t>(shape.replicas);
    for (size_t d = 0; d + replicas <= rest.size(); d += replicas) {
      groups_.emplace_back(rest.begin() + static_cast<std::ptrdiff_t>(d),
                           rest.begin() + static_cast<std::ptrdiff_t>(d + replicas));
    }
    const auto grouped = static_cast<std::ptrdiff_t>(groups_.size() * replicas);
    if (shape.rest) groups_.emplace_back(rest.begin() + grouped, rest.end());
    MeasureWork();
    loads_.assign(groups_.size(), 0);
  }

  // Along the tree; or, with `stages` > 0 or a single chain asked for, as one run.
  Draft Make(StrategyKind kind, bool one_run, int32_t stages) {
    draft_.micro_batch = shape_.micro_batch;
    const std::vector<int32_t> all = AllGroups();
    if (one_run) {
      PlaceRun(Linearize(tree_), all, stages);
    } else {
      Place(tree_.root(), all);
    }
    draft_.kind = StrategyKind::kGraph;
    if (shape_.shared == Shared::kBesideGroups && !apart_) return {};
    if (!SortStages(costs_.problem().operators->dag(), draft_)) draft_.stages.clear();
    draft_.kind = kind;
    return std::move(draft_);
  }

 private:
  using Groups = std::vector<int32_t>;

  Groups AllGroups() const {
    Groups all(groups_.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  // Work of an operator is its time on the first kind of device; the speed of a group is relative
  // to a whole group of those.
  void MeasureWork() {
    const Cluster& cluster = *costs_.problem().cluster;
    const int64_t share = std::max<int64_t>(1, shape_.micro_batch / shape_.replicas);
    const ShareTable& table = costs_.Share(share);
    std::vector<double> totals;
    for (const auto& times : table.time) {
      double total = 0;
      for (const OperatorTime& time : times) {
        total += static_cast<double>(time.forward) + static_cast<double>(time.backward);
      }
      totals.push_back(total);
    }
    for (const OperatorTime& time : table.time[0]) {
      work_.push_back(static_cast<double>(time.forward) + static_cast<double>(time.backward));
      total_ += work_.back();
    }
    double speeds = 0;
    for (const auto& group : groups_) {
      // Replicas wait for the slowest of them.
      double slowest = 0;
      for (int32_t d : group) {
        slowest = std::max(slowest, totals[cluster.device(DeviceId(d)).kind]);
      }
      const double whole = static_cast<double>(group.size()) / shape_.replicas;
      speeds_.push_back(slowest > 0 ? whole * totals[0] / slowest : whole);
      speeds += speeds_.back();
    }
    for (double speed : speeds_) targets_.push_back(total_ * speed / speeds);
    vertex_work_ = SumsBelow(tree_, work_);
  }

  double WorkOf(const std::vector<int32_t>& operators) const {
    double work = 0;
    for (int32_t op : operators) work += work_[op];
    return work;
  }

  void AddStage(std::vector<int32_t> operators, int32_t group) {
    if (operators.empty()) return;
    loads_[group] += WorkOf(operators);
    AddStageOn(std::move(operators), groups_[group]);
  }

  void AddStageOn(std::vector<int32_t> operators, std::vector<int32_t> devices) {
    std::sort(operators.begin(), operators.end());
    const bool whole =
        std::any_of(operators.begin(), operators.end(), [&](int32_t op) { return whole_[op]; });
    if (whole) devices.resize(1);
    draft_.stages.push_back({std::move(operators), std::move(devices), false});
  }

  // The group that has most left to do.
  int32_t Emptiest(const Groups& groups) const {
    int32_t best = groups.front();
    for (int32_t g : groups) {
      if (targets_[g] - loads_[g] > targets_[best] - loads_[best]) best = g;
    }
    return best;
  }

  double Target(const Groups& groups) const {
    double sum = 0;
    for (int32_t g : groups) sum += targets_[g];
    return sum;
  }

  // `stages` > 0: exactly so many slices.
  void PlaceRun(const std::vector<int32_t>& run, const Groups& groups, int32_t stages = 0) {
    const double work = WorkOf(run);
    const double each = Target(groups) / static_cast<double>(groups.size());
    const auto n = static_cast<int32_t>(run.size());
    if (stages == 0 && (n == 1 || work < kWorthCutting * each)) {
      AddStage(run, Emptiest(groups));
      return;
    }
    const auto g = static_cast<int32_t>(groups.size());
    const int32_t slices = std::min(stages > 0 ? stages : g * shape_.loops, n);
    std::vector<int32_t> owner;
    double speed = 0;
    for (int32_t i = 0; i < slices; ++i) {
      const bool back = shape_.placement == Placement::kVShaped && (i / g) % 2 == 1;
      owner.push_back(groups[back ? g - 1 - i % g : i % g]);
      speed += speeds_[owner.back()];
    }
    int32_t begin = 0;
    double done = 0;
    double due = 0;
    for (int32_t i = 0; i < slices; ++i) {
      due += work * speeds_[owner[i]] / speed;
      std::vector<int32_t> slice;
      const int32_t last = n - (slices - 1 - i);  // Leave one for each slice behind.
      while (begin < last) {
        const double next = work_[run[begin]];
        if (!slice.empty() && i + 1 < slices && done + next / 2 > due) break;
        done += next;
        slice.push_back(run[begin++]);
      }
      AddStage(std::move(slice), owner[i]);
    }
  }

  void Place(int32_t vertex, const Groups& groups) {
    const SpTree::Vertex& v = tree_.vertices[vertex];
    if (v.kind == SpTree::Kind::kLeaf) {
      PlaceRun({v.leaf}, groups);
    } else if (v.kind == SpTree::Kind::kParallel) {
      PlaceParallel(v.children, groups);
    } else {
      PlaceSeries(v.children, groups, vertex == tree_.root());
    }
  }

  // Runs of single operators first: branches fill up what they leave.
  void PlaceSeries(const std::vector<int32_t>& children, const Groups& groups, bool shared) {
    std::vector<int32_t> run;
    const auto flush = [&] {
      if (!run.empty() && shared && !shared_.empty()) {
        AddStageOn(run, shared_);
      } else if (!run.empty()) {
        PlaceRun(run, groups);
      }
      run.clear();
    };
    for (int32_t child : children) {
      if (tree_.vertices[child].kind == SpTree::Kind::kLeaf) {
        run.push_back(tree_.vertices[child].leaf);
      } else {
        flush();
      }
    }
    flush();
    for (int32_t child : children) {
      if (tree_.vertices[child].kind != SpTree::Kind::kLeaf) Place(child, groups);
    }
  }

  void PlaceParallel(const std::vector<int32_t>& children, const Groups& groups) {
    const double each = Target(groups) / static_cast<double>(groups.size());
    std::vector<int32_t> heavy;
    std::vector<int32_t> light;
    for (int32_t child : children)
      (vertex_work_[child] < kWorthCutting * each ? light : heavy).push_back(child);
    if (!heavy.empty() && heavy.size() <= groups.size()) {
      if (shape_.shared == Shared::kBesideGroups && PlaceApart(heavy, light, groups)) return;
      PlaceBranches(heavy, groups);
    } else {
      light.insert(light.begin(), heavy.begin(), heavy.end());
      FillUp(light, groups);
      return;
    }
    FillUp(light, groups);
  }

  // As many groups for each heavy branch, and single devices of what is left for the light ones:
  // to sum their gradients would cost more than replicas save. False unless both are there.
  bool PlaceApart(const std::vector<int32_t>& heavy, const std::vector<int32_t>& light,
                  const Groups& groups) {
    const size_t each = (groups.size() - 1) / heavy.size();
    if (each == 0 || light.empty()) return false;
    apart_ = true;
    auto next = groups.begin();
    for (int32_t branch : heavy) {
      const auto last = next + static_cast<std::ptrdiff_t>(each);
      Place(branch, Groups(next, last));
      next = last;
    }
    double work = 0;
    for (int32_t branch : light) work += vertex_work_[branch];
    FillUp(light, SingleDevices(Groups(next, groups.end()), work));
    return true;
  }

  // Groups of one device each, which share so much work.
  Groups SingleDevices(const Groups& groups, double work) {
    Groups singles;
    for (int32_t g : groups) {
      const std::vector<int32_t> devices = groups_[g];
      for (int32_t d : devices) {
        singles.push_back(static_cast<int32_t>(groups_.size()));
        groups_.push_back({d});
        speeds_.push_back(speeds_[g]);
        loads_.push_back(0);
      }
    }
    targets_.resize(groups_.size(), work / static_cast<double>(singles.size()));
    return singles;
  }

  // Groups of its own for each branch.
  void PlaceBranches(const std::vector<int32_t>& branches, const Groups& groups) {
    std::vector<double> work;
    for (int32_t branch : branches) work.push_back(vertex_work_[branch]);
    const std::vector<int32_t> count = CountsByWork(work, static_cast<int32_t>(groups.size()));
    auto next = groups.begin();
    for (size_t i = 0; i < branches.size(); ++i) {
      Place(branches[i], Groups(next, next + count[i]));
      next += count[i];
    }
  }

  // Branches in a row over groups up to their targets.
  void FillUp(const std::vector<int32_t>& branches, const Groups& groups) {
    for (int32_t branch : branches) {
      std::vector<int32_t> piece;
      int32_t group = Emptiest(groups);
      double load = loads_[group];
      for (int32_t op : LeavesOf(tree_, branch)) {
        if (!piece.empty() && load + work_[op] / 2 > targets_[group]) {
          AddStage(std::exchange(piece, {}), group);
          group = Emptiest(groups);
          load = loads_[group];
        }
        piece.push_back(op);
        load += work_[op];
      }
      AddStage(std::move(piece), group);
    }
  }

  const OperatorCosts& costs_;
  const SpTree& tree_;
  Shape shape_;
  const std::vector<bool> whole_;  // Operators that are not replicated.
  std::vector<int32_t> shared_;    // Devices apart from the groups.
  std::vector<std::vector<int32_t>> groups_;
  std::vector<double> work_;         // By operator.
  std::vector<double> vertex_work_;  // By vertex of the tree.
  double total_ = 0;
  std::vector<double> speeds_, targets_, loads_;  // By group.
  bool apart_ = false;                            // PlaceApart had something to do.
  Draft draft_;
};

// Powers of two, and what divides the devices evenly.
std::vector<int32_t> GroupSizes(int32_t devices) {
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size <= devices; ++size) {
    if (std::has_single_bit(static_cast<uint32_t>(size)) || devices % size == 0) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

void AddShapes(const Problem& problem, const PlanOptions& options, int32_t replicas, Shared shared,
               int64_t most_micro_batches, std::vector<Shape>& shapes) {
  const int32_t groups = problem.cluster->size() / replicas;
  if (groups > kMostGroups) return;
  size_t most = static_cast<size_t>(replicas);
  if (shared == Shared::kOfEveryNode || shared == Shared::kBesideGroups) {
    most = std::max(most, OneOfEveryNode(*problem.cluster).size());
  } else if (shared == Shared::kOnAll) {
    most = static_cast<size_t>(problem.cluster->size());
  }
  if (most > 1 && !options.allow_replicas) return;
  for (int64_t size : MicroBatchSizes(problem, options, Rounding::kUp)) {
    if (MostReplicas(problem, options, size) < static_cast<int64_t>(most) ||
        problem.mini_batch / size > most_micro_batches) {
      continue;
    }
    for (int32_t loops = 1; loops <= kMostLoops; loops *= 2) {
      if (loops > kFewLoops && groups * loops > kMostSlices) break;
      if (options.max_loops > 0 && loops > options.max_loops) break;
      shapes.push_back({replicas, size, loops, Placement::kInterleaved, shared});
      if (loops == 2) shapes.push_back({replicas, size, loops, Placement::kVShaped, shared});
    }
  }
}

// Whether there is a light branch beside a heavy one.
bool HasUnlikeBranches(const OperatorCosts& costs, const SpTree& tree) {
  std::vector<double> times;
  for (const OperatorTime& time : costs.Share(1).time[0])
    times.push_back(static_cast<double>(time.forward + time.backward));
  const std::vector<double> work = SumsBelow(tree, times);
  for (const SpTree::Vertex& vertex : tree.vertices) {
    if (vertex.kind != SpTree::Kind::kParallel) continue;
    const auto [light, heavy] =
        std::minmax_element(vertex.children.begin(), vertex.children.end(),
                            [&](int32_t a, int32_t b) { return work[a] < work[b]; });
    if (work[*light] < kWorthCutting * work[*heavy]) return true;
  }
  return false;
}

// Groups of equal size and one of the devices that are left, where some are.
std::vector<Shape> ShapesWithRest(const Problem& problem, const PlanOptions& options,
                                  int64_t most_micro_batches) {
  std::vector<Shape> shapes;
  const int32_t devices = problem.cluster->size();
  for (int32_t replicas : GroupSizes(devices)) {
    if (devices % replicas == 0) continue;
    AddShapes(problem, options, replicas, Shared::kInGroups, most_micro_batches, shapes);
  }
  for (Shape& shape : shapes) shape.rest = true;
  return shapes;
}

std::vector<Shape> Shapes(const Problem& problem, const PlanOptions& options, bool branches,
                          bool unlike, int64_t most_micro_batches) {
  std::vector<Shape> shapes;
  const int32_t devices = problem.cluster->size();
  const auto nodes = static_cast<int32_t>(OneOfEveryNode(*problem.cluster).size());
  for (int32_t replicas : GroupSizes(devices)) {
    AddShapes(problem, options, replicas, Shared::kInGroups, most_micro_batches, shapes);
    if (branches && replicas < devices) {
      AddShapes(problem, options, replicas, Shared::kOnAll, most_micro_batches, shapes);
    }
  }
  if (!branches || nodes == 0) return shapes;
  for (int32_t replicas : GroupSizes(devices)) {
    if (!unlike || replicas == devices) continue;
    AddShapes(problem, options, replicas, Shared::kBesideGroups, most_micro_batches, shapes);
  }
  for (int32_t replicas : GroupSizes((devices - nodes) / nodes)) {
    AddShapes(problem, options, replicas, Shared::kOfEveryNode, most_micro_batches, shapes);
  }
  return shapes;
}

// Calls add(draft) for drafts in which every part has devices of its own, of all sizes and
// replicas.
template <typename Add>
void AddOnOwnDevices(const OperatorCosts& costs, const PlanOptions& options, const SpTree& tree,
                     const SearchContext& context, int64_t most_micro_batches, const Add& add) {
  const Problem& problem = costs.problem();
  const int32_t devices = problem.cluster->size();
  for (int64_t size : MicroBatchSizes(problem, options, Rounding::kUp)) {
    if (problem.mini_batch / size > most_micro_batches) continue;
    const auto most =
        static_cast<int32_t>(std::min<int64_t>(MostReplicas(problem, options, size), devices));
    for (int32_t replicas = 1;; replicas = std::min(2 * replicas, most)) {
      if (context.Expired()) return;
      context.Spend(work::kLayout * costs.size());
      if (auto draft = DraftOnOwnDevices(costs, tree, size, {replicas, most}))
        add(*std::move(draft));
      if (replicas >= most) break;
    }
  }
}

// Calls add(draft) for drafts in which the parts are packed on the devices, of all sizes.
template <typename Add>
void AddOnPackedDevices(const OperatorCosts& costs, const PlanOptions& options, const SpTree& tree,
                        const SearchContext& context, int64_t most_micro_batches, const Add& add) {
  const Problem& problem = costs.problem();
  for (int64_t size : MicroBatchSizes(problem, options, Rounding::kUp)) {
    if (problem.mini_batch / size > most_micro_batches) continue;
    const auto most = static_cast<int32_t>(
        std::min<int64_t>(MostReplicas(problem, options, size), problem.cluster->size()));
    std::set<int32_t> replicas = {most};
    for (int32_t few : {1, 2, 4}) replicas.insert(std::min(few, most));
    for (double longest : {1.0, 0.5}) {
      for (double slack : {0.05, 0.25}) {
        for (int32_t count : replicas) {
          if (context.Expired()) return;
          context.Spend(work::kLayout * costs.size());
          if (auto draft = DraftOnPackedDevices(costs, tree, size, {longest, slack, count}))
            add(*std::move(draft));
        }
      }
    }
  }
}

}  // namespace

std::vector<Draft> StartDrafts(const OperatorCosts& costs, const PlanOptions& options,
                               StrategyKind kind, const SearchContext& context,
                               int64_t most_micro_batches, bool with_rest) {
  const Problem& problem = costs.problem();
  const SpTree tree = Decompose(problem.operators->dag());
  const bool branches = std::any_of(tree.vertices.begin(), tree.vertices.end(), [](const auto& v) {
    return v.kind == SpTree::Kind::kParallel;
  });
  std::vector<Draft> drafts;
  std::set<Draft> known;
  std::vector<Shape> shapes;
  if (with_rest) shapes = ShapesWithRest(problem, options, most_micro_batches);
  if (shapes.empty()) {
    shapes = Shapes(problem, options, branches && options.num_stages == 0,
                    branches && HasUnlikeBranches(costs, tree), most_micro_batches);
  }
  const auto add = [&](Draft draft) {
    if (options.recompute == RecomputePolicy::kAlways) {
      for (DraftStage& stage : draft.stages) stage.recompute = true;
    }
    if (!draft.stages.empty() && known.insert(draft).second) drafts.push_back(std::move(draft));
  };
  for (const Shape& shape : shapes) {
    if (context.Expired()) break;
    context.Spend(work::kLayout * costs.size());
    for (bool one_run : {false, true}) {
      if (!one_run && (options.num_stages > 0 || !branches)) continue;
      if (one_run && shape.shared != Shared::kInGroups) continue;
      add(Layout(costs, tree, shape).Make(kind, one_run, options.num_stages));
    }
  }
  if (!branches || with_rest || options.num_stages > 0) return drafts;
  const auto add_sorted = [&](Draft draft) {
    draft.kind = StrategyKind::kGraph;
    if (!SortStages(problem.operators->dag(), draft)) return;
    draft.kind = kind;
    add(std::move(draft));
  };
  // There are no groups of few devices where these are many.
  if (problem.cluster->size() > kMostGroups) {
    AddOnOwnDevices(costs, options, tree, context, most_micro_batches, add_sorted);
  } else {
    AddOnPackedDevices(costs, options, tree, context, most_micro_batches, add_sorted);
  }
  return drafts;
}

}  // namespace stagewright
