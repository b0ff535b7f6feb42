// Coarsening, in four steps; each keeps the graph of groups acyclic.
//
//  1. Set aside constant nodes and cheap parameter-free work on the inputs.
//  2. Unite the ends of every edge that cannot be cut, and all that lies on paths between: the
//     strongly connected components of the quotient.
//  3. Light groups join a neighbour. If all groups that v reads are ancestors of one of them, L,
//     then a path L -> ... -> v through another group would end in a predecessor of v that is a
//     descendant of L, which is none; so v may join L. If all that read v are in one group S, v may
//     join S for the mirrored reason. Neither changes who reaches whom among the other groups.
//  4. Small operators join the lighter neighbour in a chain; nodes set aside join their only
//     reader, or are replicated if there are several.
#include "common/graph/operator_graph.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"
#include "common/graph/aten.h"
#include "common/graph/coarsening/set_aside.h"

namespace stagewright {
namespace {

// A parametrised node lighter than this share of the mean joins a neighbour, and so does an
// operator lighter than kSmallShare of the mean operator that has a neighbour in a chain.
constexpr double kLightShare = 0.25;
constexpr double kSmallShare = 0.65;
// Light parametrised work that one operator may collect, in mean weights: a long chain of small
// layers becomes many operators, not one.
constexpr double kCollected = 0.5;

// Mean weight of the nodes that read a parameter; of all nodes if none does.
double MeanParametrisedWeight(const Graph& graph, const std::vector<double>& weight) {
  double sum = 0;
  double count = 0;
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (graph.Parameters(NodeId(v)).empty()) continue;
    sum += weight[v];
    count += 1;
  }
  if (count > 0) return sum / count;
  return std::accumulate(weight.begin(), weight.end(), 0.0) / static_cast<double>(weight.size());
}

// Strongly connected components by Tarjan's algorithm without recursion; the label of each vertex.
std::vector<int32_t> Components(const std::vector<std::vector<int32_t>>& out) {
  const auto n = static_cast<int32_t>(out.size());
  std::vector<int32_t> label(n, -1), index(n, -1), low(n, 0), open;
  std::vector<std::pair<int32_t, size_t>> path;
  int32_t next_index = 0;
  int32_t next_label = 0;
  for (int32_t root = 0; root < n; ++root) {
    if (index[root] >= 0) continue;
    path.emplace_back(root, 0);
    while (!path.empty()) {
      const int32_t v = path.back().first;
      if (path.back().second == 0) {
        index[v] = low[v] = next_index++;
        open.push_back(v);
      }
      if (path.back().second < out[v].size()) {
        const int32_t w = out[v][path.back().second++];
        if (index[w] < 0) {
          path.emplace_back(w, 0);
        } else if (label[w] < 0) {
          low[v] = std::min(low[v], index[w]);
        }
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back().first] = std::min(low[path.back().first], low[v]);
      if (low[v] != index[v]) continue;
      int32_t w = -1;
      do {
        w = open.back();
        open.pop_back();
        label[w] = next_label;
      } while (w != v);
      ++next_label;
    }
  }
  return label;
}

class Coarsener {
 public:
  Coarsener(const Graph& graph, const std::vector<double>& weight)
      : graph_(graph),
        weight_(weight),
        mean_(MeanParametrisedWeight(graph, weight)),
        aside_(SetAside(graph, weight, kLightShare * mean_)),
        group_(graph.size(), -1) {}

  // Steps 2 to 4; afterwards group() is final.
  void Run() {
    UniteUncuttable();
    UniteIsolated();
    bool changed = true;
    while (changed) {
      changed = JoinForward();
      changed = JoinBackward() || changed;
    }
    UniteOperands();
    UniteSmall();
    PlaceAside();
  }

  // The group of each node, dense from 0; -1 for replicated nodes.
  const std::vector<int32_t>& group() const { return group_; }
  int32_t num_groups() const { return num_groups_; }

 private:
  // What joining needs to know about a group.
  struct Traits {
    double weight = 0;
    double collected = 0;     // Weight of its light parametrised nodes.
    bool heavy = false;       // Has a node that is not light.
    bool parameters = false;  // Has a node with parameters.
    bool product = false;     // Has a parameter-free matrix product or attention that is not light.
  };

  bool IsLight(int32_t v) const {
    if (weight_[v] < kLightShare * mean_) return true;
    return graph_.Parameters(NodeId(v)).empty() && !graph_.node(NodeId(v)).cost &&
           !IsMatmulLike(KindOfTarget(graph_.node(NodeId(v)).target));
  }

  std::vector<Traits> TraitsOfGroups() const {
    std::vector<Traits> traits(num_groups_);
    for (int32_t v = 0; v < graph_.size(); ++v) {
      if (group_[v] < 0) continue;
      Traits& t = traits[group_[v]];
      const bool parameters = !graph_.Parameters(NodeId(v)).empty();
      const bool light = IsLight(v);
      t.weight += weight_[v];
      t.heavy = t.heavy || !light;
      t.parameters = t.parameters || parameters;
      t.product = t.product || (!light && !parameters);
      if (light && parameters) t.collected += weight_[v];
    }
    return traits;
  }

  Dag QuotientDag() const {
    auto dag = Quotient(graph_.dag(), group_, num_groups_);
    CHECK(dag.ok());
    return *std::move(dag);
  }

  // Replaces every group g by into[g] (followed to its end) and renumbers densely.
  void Apply(std::vector<int32_t> into) {
    std::vector<int32_t> dense(num_groups_, -1);
    int32_t next = 0;
    for (int32_t v : graph_.dag().order()) {
      if (group_[v] < 0) continue;
      int32_t& number = dense[Find(into, group_[v])];
      if (number < 0) number = next++;
      group_[v] = number;
    }
    num_groups_ = next;
  }

  static int32_t Find(std::vector<int32_t>& into, int32_t g) {
    while (into[g] != g) g = into[g] = into[into[g]];
    return g;
  }

  std::vector<int32_t> Identity() const {
    std::vector<int32_t> into(num_groups_);
    std::iota(into.begin(), into.end(), 0);
    return into;
  }

  // Step 2. An edge that cannot be cut ties both ends into one component.
  void UniteUncuttable() {
    std::vector<std::vector<int32_t>> out(graph_.size());
    for (int32_t v = 0; v < graph_.size(); ++v) {
      if (aside_[v]) continue;
      for (int32_t u : graph_.dag().Predecessors(v)) {
        if (!aside_[u]) out[u].push_back(v);
      }
      for (const ValueRef& value : graph_.Values(NodeId(v))) {
        const int32_t u = value.node.value();
        if (!aside_[u] && !graph_.meta(value).IsBatched()) out[v].push_back(u);
      }
    }
    TieState(out);
    group_ = Components(out);
    num_groups_ = graph_.size();
    for (int32_t v = 0; v < graph_.size(); ++v) {
      if (aside_[v]) group_[v] = -1;
    }
    Apply(Identity());
  }

  // What reads a state and what computes its next value share a stage, so that all see the same.
  void TieState(std::vector<std::vector<int32_t>>& out) const {
    std::vector<int32_t> first(graph_.parameters().size(), -1);
    const auto tie = [&](ParameterId state, int32_t v) {
      int32_t& other = first[state.index()];
      if (other < 0) other = v;
      out[v].push_back(other);
      out[other].push_back(v);
    };
    for (const StateUpdate& update : graph_.state_updates())
      tie(update.parameter, update.value.node.value());
    for (int32_t v = 0; v < graph_.size(); ++v) {
      for (ParameterId id : graph_.Parameters(NodeId(v))) {
        if (graph_.is_state(id)) tie(id, v);
      }
    }
  }

  // A group that neither reads nor is read (a counter of steps) joins the group of a node of its
  // module, or that of the loss: without edges of its own it closes no cycle.
  void UniteIsolated() {
    if (!graph_.executable()) return;
    const Dag dag = QuotientDag();
    const int32_t of_loss = group_[graph_.loss()->node.index()];
    std::vector<int32_t> into = Identity();
    for (int32_t v = 0; v < graph_.size(); ++v) {
      const int32_t g = group_[v];
      if (g < 0 || !dag.Predecessors(g).empty() || !dag.Successors(g).empty()) continue;
      const std::string& module = graph_.node(NodeId(v)).module;
      int32_t target = of_loss;
      for (int32_t w = 0; w < graph_.size() && !module.empty(); ++w) {
        const int32_t h = group_[w];
        const bool joined = h >= 0 && h != g && graph_.node(NodeId(w)).module == module &&
                            (!dag.Predecessors(h).empty() || !dag.Successors(h).empty());
        if (!joined) continue;
        target = h;
        break;
      }
      if (target >= 0 && target != g) into[g] = target;
    }
    Apply(std::move(into));
  }

  static bool MayCollect(const Traits& a, const Traits& b, double most) {
    return a.collected == 0 || a.collected + b.collected <= most;
  }

  static void Add(Traits& into, const Traits& from) {
    into.weight += from.weight;
    into.collected += from.collected;
    into.heavy = into.heavy || from.heavy;
    into.parameters = into.parameters || from.parameters;
    into.product = into.product || from.product;
  }

  // Step 3, towards the inputs.
  bool JoinForward() {
    const Dag dag = QuotientDag();
    const Reachability reach(dag);
    std::vector<Traits> traits = TraitsOfGroups();
    std::vector<int32_t> rank(num_groups_);
    for (int32_t i = 0; i < num_groups_; ++i) rank[dag.order()[i]] = i;
    std::vector<int32_t> into = Identity();
    bool changed = false;
    for (int32_t v : dag.order()) {
      if (traits[v].heavy || dag.Predecessors(v).empty()) continue;
      int32_t latest = -1;
      for (int32_t p : dag.Predecessors(v)) {
        const int32_t g = Find(into, p);
        if (latest < 0 || rank[g] > rank[latest]) latest = g;
      }
      const auto before = dag.Predecessors(v);
      const bool safe = std::all_of(before.begin(), before.end(), [&](int32_t p) {
        const int32_t g = Find(into, p);
        return g == latest || reach.Reaches(g, latest);
      });
      if (!safe || !MayCollect(traits[v], traits[latest], kCollected * mean_)) continue;
      Add(traits[latest], traits[v]);
      into[v] = latest;
      changed = true;
    }
    if (changed) Apply(std::move(into));
    return changed;
  }

  // Step 3, towards the loss. A light group with parameters of its own joins only in a chain: the
  // branches of a fan-in stay apart.
  bool JoinBackward() {
    const Dag dag = QuotientDag();
    std::vector<Traits> traits = TraitsOfGroups();
    std::vector<int32_t> into = Identity();
    bool changed = false;
    for (auto it = dag.order().rbegin(); it != dag.order().rend(); ++it) {
      const int32_t v = *it;
      if (traits[v].heavy || dag.Successors(v).empty()) continue;
      const int32_t s = Find(into, dag.Successors(v)[0]);
      const auto after = dag.Successors(v);
      const bool single =
          std::all_of(after.begin(), after.end(), [&](int32_t w) { return Find(into, w) == s; });
      if (!single || !MayCollect(traits[v], traits[s], kCollected * mean_)) continue;
      const bool chain =
          after.size() == 1 && s == after[0] && dag.Predecessors(after[0]).size() == 1;
      if (traits[v].parameters && !chain) continue;
      Add(traits[s], traits[v]);
      into[v] = s;
      changed = true;
    }
    if (changed) Apply(std::move(into));
    return changed;
  }

  // Step 4: a parameter-free product (attention) is united with the groups that only feed it, as
  // queries, keys and values do. They must read the same tensors, or two branches would become one
  // operator.
  void UniteOperands() {
    const Dag dag = QuotientDag();
    const std::vector<Traits> traits = TraitsOfGroups();
    std::vector<std::vector<int32_t>> sources(num_groups_);  // Groups, then ~inputs.
    for (int32_t g = 0; g < num_groups_; ++g) {
      sources[g].assign(dag.Predecessors(g).begin(), dag.Predecessors(g).end());
    }
    for (int32_t v = 0; v < graph_.size(); ++v) {
      if (group_[v] < 0) continue;
      for (InputId input : graph_.Inputs(NodeId(v))) sources[group_[v]].push_back(~input.value());
    }
    for (auto& list : sources) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    std::vector<int32_t> into = Identity();
    for (int32_t v : dag.order()) {
      const auto before = dag.Predecessors(v);
      if (!traits[v].product || before.empty() || sources[before[0]].empty()) continue;
      const bool closed = std::all_of(before.begin(), before.end(), [&](int32_t u) {
        return dag.Successors(u).size() == 1 && sources[u] == sources[before[0]];
      });
      if (!closed) continue;
      for (int32_t u : before) into[Find(into, u)] = Find(into, v);
    }
    Apply(std::move(into));
  }

  // Step 4: an operator lighter than kSmallShare of the mean joins the lighter of its neighbours in
  // a chain, if together they stay within two means.
  void UniteSmall() {
    const Dag dag = QuotientDag();
    const Dag reduced = TransitiveReduction(dag, Reachability(dag));
    std::vector<Traits> traits = TraitsOfGroups();
    double mean = 0;
    for (const Traits& t : traits) mean += t.weight / num_groups_;
    std::vector<bool> united(num_groups_, false);
    std::vector<int32_t> into = Identity();
    for (int32_t v : reduced.order()) {
      if (united[v] || traits[v].weight >= kSmallShare * mean) continue;
      int32_t best = -1;
      auto consider = [&](std::span<const int32_t> to, bool forward) {
        if (to.size() != 1 || united[to[0]]) return;
        const auto back = forward ? reduced.Predecessors(to[0]) : reduced.Successors(to[0]);
        if (back.size() != 1 || traits[v].weight + traits[to[0]].weight > 2 * mean) return;
        if (best < 0 || traits[to[0]].weight < traits[best].weight) best = to[0];
      };
      consider(reduced.Predecessors(v), false);
      consider(reduced.Successors(v), true);
      if (best < 0) continue;
      into[v] = best;
      united[v] = united[best] = true;
    }
    Apply(std::move(into));
  }

  // Step 4: nodes set aside, readers first.
  void PlaceAside() {
    const auto& order = graph_.dag().order();
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      if (!aside_[*it]) continue;
      const auto readers = graph_.dag().Successors(*it);
      const int32_t owner = readers.empty() ? -1 : group_[readers[0]];
      const bool one = std::all_of(readers.begin(), readers.end(),
                                   [&](int32_t w) { return group_[w] == owner; });
      group_[*it] = one ? owner : -1;
    }
  }

  const Graph& graph_;
  const std::vector<double>& weight_;
  const double mean_;
  const std::vector<bool> aside_;
  std::vector<int32_t> group_;
  int32_t num_groups_ = 0;
};

std::string NameOf(const Graph& graph, const std::vector<NodeId>& nodes,
                   const std::vector<double>& weight) {
  NodeId heaviest = nodes[0];
  for (NodeId id : nodes) {
    if (weight[id.index()] > weight[heaviest.index()]) heaviest = id;
  }
  const Node& node = graph.node(heaviest);
  return node.module.empty() ? node.name : absl::StrCat(node.module, "/", node.name);
}

// Operators are numbered in topological order.
std::vector<int32_t> TopologicalNumbers(const Dag& dag) {
  std::vector<int32_t> number(dag.size());
  for (int32_t i = 0; i < dag.size(); ++i) number[dag.order()[i]] = i;
  return number;
}

}  // namespace

absl::StatusOr<OperatorGraph> Coarsen(const Graph& graph, const std::vector<double>& weight) {
  if (weight.size() != static_cast<size_t>(graph.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("weight: ", weight.size(), " values for ", graph.size(), " nodes"));
  }
  for (size_t v = 0; v < weight.size(); ++v) {
    if (!std::isfinite(weight[v]) || weight[v] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("weight of node \"", graph.node(NodeId(static_cast<int64_t>(v))).name,
                       "\" is ", weight[v], "; it must be finite and not negative"));
    }
  }
  Coarsener coarsener(graph, weight);
  coarsener.Run();
  ASSIGN_OR_RETURN(const Dag provisional,
                   Quotient(graph.dag(), coarsener.group(), coarsener.num_groups()));

  const std::vector<int32_t> number = TopologicalNumbers(provisional);
  OperatorGraph result;
  result.operators_.resize(provisional.size());
  result.owner_.resize(graph.size());
  std::vector<int32_t> group(graph.size(), -1);
  for (int32_t v : graph.dag().order()) {
    if (coarsener.group()[v] < 0) {
      result.replicated_.push_back(NodeId(v));
      continue;
    }
    group[v] = number[coarsener.group()[v]];
    result.owner_[v] = OperatorId(group[v]);
    result.operators_[group[v]].nodes.push_back(NodeId(v));
  }
  for (Operator& op : result.operators_) op.name = NameOf(graph, op.nodes, weight);
  ASSIGN_OR_RETURN(result.dag_, Quotient(graph.dag(), group, provisional.size()));
  return result;
}

absl::StatusOr<OperatorGraph> OneOperatorPerNode(const Graph& graph) {
  OperatorGraph result;
  result.dag_ = graph.dag();
  for (int32_t v = 0; v < graph.size(); ++v) {
    result.operators_.push_back({graph.node(NodeId(v)).name, {NodeId(v)}});
    result.owner_.push_back(OperatorId(v));
  }
  return result;
}

OperatorGraph United(const Graph& graph, const OperatorGraph& operators,
                     const std::vector<int32_t>& group, int32_t count) {
  const auto provisional = Quotient(operators.dag(), group, count);
  CHECK(provisional.ok());
  const std::vector<int32_t> number = TopologicalNumbers(*provisional);
  OperatorGraph result;
  result.replicated_ = operators.replicated();
  result.operators_.resize(count);
  result.owner_.resize(graph.size());
  std::vector<int32_t> united(operators.size());
  for (int32_t v : operators.dag().order()) {
    united[v] = number[group[v]];
    Operator& into = result.operators_[united[v]];
    if (into.name.empty()) into.name = operators.op(OperatorId(v)).name;
  }
  for (int32_t v : graph.dag().order()) {
    const OperatorId owner = operators.owner(NodeId(v));
    if (!owner.valid()) continue;
    result.owner_[v] = OperatorId(united[owner.index()]);
    result.operators_[united[owner.index()]].nodes.push_back(NodeId(v));
  }
  result.dag_ = *Quotient(operators.dag(), united, count);
  return result;
}

std::vector<NodeId> ReplicatedInto(const Graph& graph, const OperatorGraph& operators,
                                   const std::vector<NodeId>& nodes) {
  return SharedInto(graph, operators.replicated(), nodes);
}

}  // namespace stagewright
