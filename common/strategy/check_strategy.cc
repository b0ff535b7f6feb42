// The conditions of GraphPipe section 3 on a strategy.
#include "common/strategy/check_strategy.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/strategy/check_orders.h"
#include "common/strategy/strategy.h"

namespace stagewright {
namespace {

// Products of sample counts must not overflow.
constexpr int64_t kMostSamples = int64_t{1} << 30;

// Asynchronous programs are validated and simulated over several steps at once.
constexpr int64_t kUnrolledSteps = 8;

template <typename... Args>
absl::Status Broken(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}

std::string Quoted(const Graph& graph, NodeId node) {
  return absl::StrCat("node \"", graph.node(node).name, "\"");
}

// Node and device ids exist, so that everything after may index with them.
absl::Status CheckIds(const Graph& graph, int32_t devices, const Strategy& strategy) {
  if (strategy.stages.empty()) return Broken("stages: there is none");
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    const Stage& stage = strategy.stages[s];
    for (const auto* nodes : {&stage.nodes, &stage.replicated}) {
      for (NodeId node : *nodes) {
        if (!node.valid() || node.value() >= graph.size())
          return Broken("stage ", s, ": node ", node.value(), " does not exist");
      }
    }
    for (DeviceId device : stage.devices) {
      if (!device.valid() || device.value() >= devices)
        return Broken("stage ", s, ": device ", device.value(), " does not exist");
    }
  }
  const auto stages = static_cast<int64_t>(strategy.stages.size());
  for (const StageEdge& edge : strategy.edges) {
    if (!edge.from.valid() || !edge.to.valid() || edge.from.value() >= stages ||
        edge.to.value() >= stages) {
      return Broken("edge ", edge.from.value(), " -> ", edge.to.value(),
                    ": the stage does not exist");
    }
  }
  return absl::OkStatus();
}

// Training changes a parameter that the node reads, so that stages must share what it computes.
std::optional<ParameterId> ChangingParameter(const Graph& graph, NodeId node) {
  for (ParameterId id : graph.Parameters(node)) {
    if (graph.parameter(id).trainable || graph.is_state(id)) return id;
  }
  return std::nullopt;
}

// A constant that no stage recomputes, because none reads it (CheckStageOrder sees to that).
bool IsUnusedConstant(const Graph& graph, const std::vector<StageId>& owner, NodeId node) {
  const auto before = graph.dag().Predecessors(node.value());
  const auto updates = graph.state_updates();
  return !ChangingParameter(graph, node).has_value() && !graph.node(node).cost.has_value() &&
         std::none_of(updates.begin(), updates.end(),
                      [&](const StateUpdate& update) { return update.value.node == node; }) &&
         !(graph.loss().has_value() && graph.loss()->node == node) &&
         !(graph.prediction().has_value() && graph.prediction()->node == node) &&
         std::none_of(before.begin(), before.end(), [&](int32_t u) { return owner[u].valid(); });
}

// C1, first part: the own nodes of the stages partition the nodes that are not replicated.
absl::Status CheckPartition(const Graph& graph, const Strategy& strategy) {
  std::vector<StageId> owner(graph.size());
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    if (strategy.stages[s].nodes.empty()) return Broken("C1: stage ", s, " has no node");
    for (NodeId node : strategy.stages[s].nodes) {
      StageId& mine = owner[node.index()];
      if (mine.valid())
        return Broken("C1: ", Quoted(graph, node), " is in stages ", mine.value(), " and ", s);
      mine = StageId(static_cast<int64_t>(s));
    }
  }
  std::vector<bool> replicated(graph.size(), false);
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    for (NodeId node : strategy.stages[s].replicated) {
      if (owner[node.index()].valid()) {
        return Broken("C1: ", Quoted(graph, node), " is replicated in stage ", s,
                      " and owned by stage ", owner[node.index()].value());
      }
      if (const auto id = ChangingParameter(graph, node)) {
        return Broken("C1: ", Quoted(graph, node), " is replicated in stage ", s, " but reads \"",
                      graph.parameter(*id).name, "\", which training changes");
      }
      replicated[node.index()] = true;
    }
  }
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (!owner[v].valid() && !replicated[v] && !IsUnusedConstant(graph, owner, NodeId(v)))
      return Broken("C1: ", Quoted(graph, NodeId(v)), " is in no stage");
  }
  return absl::OkStatus();
}

// C1 for state: one stage reads it and computes its next value.
absl::Status CheckState(const Graph& graph, const Strategy& strategy) {
  const std::vector<StageId> owner = StageOwners(graph, strategy.stages);
  std::vector<StageId> keeper(graph.parameters().size());
  for (const StateUpdate& update : graph.state_updates())
    keeper[update.parameter.index()] = owner[update.value.node.index()];
  for (int32_t v = 0; v < graph.size(); ++v) {
    for (ParameterId id : graph.Parameters(NodeId(v))) {
      if (!graph.is_state(id)) continue;
      StageId& here = keeper[id.index()];
      if (!here.valid()) here = owner[v];
      if (owner[v] == here) continue;
      return Broken("C1: ", Quoted(graph, NodeId(v)), " of stage ", owner[v].value(), " reads \"",
                    graph.parameter(id).name, "\", which stage ", here.value(), " changes");
    }
  }
  return absl::OkStatus();
}

// Nodes of a stage are in topological order, and what they read is there: owned by some stage or
// recomputed here.
absl::Status CheckStageOrder(const Graph& graph, const Strategy& strategy) {
  const std::vector<StageId> owner = StageOwners(graph, strategy.stages);
  std::vector<int32_t> seen(graph.size(), -1);  // The stage that listed the node last.
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    const Stage& stage = strategy.stages[s];
    const auto here = static_cast<int32_t>(s);
    for (const auto* nodes : {&stage.replicated, &stage.nodes}) {
      for (NodeId node : *nodes) {
        if (seen[node.index()] == here)
          return Broken("C1: ", Quoted(graph, node), " is listed twice in stage ", s);
        for (int32_t before : graph.dag().Predecessors(node.value())) {
          const bool elsewhere = owner[before].valid() && owner[before].value() != here;
          if (nodes == &stage.replicated && owner[before].valid()) {
            return Broken("C1: ", Quoted(graph, node), " is replicated in stage ", s, " but reads ",
                          Quoted(graph, NodeId(before)), " of stage ", owner[before].value());
          }
          if (!elsewhere && seen[before] != here) {
            return Broken("C1: stage ", s, ": ", Quoted(graph, node), " reads ",
                          Quoted(graph, NodeId(before)),
                          owner[before].valid() ? ", which is listed after it"
                                                : ", which is not replicated here before it");
          }
        }
        seen[node.index()] = here;
      }
    }
  }
  return absl::OkStatus();
}

// A node outside stage `s` on a path between two of its nodes; the invalid id if it is convex.
NodeId NodeBetween(const Graph& graph, const std::vector<StageId>& owner, StageId s) {
  std::vector<bool> below(graph.size(), false);  // Outside, reached from the stage.
  std::vector<bool> above(graph.size(), false);  // Outside, reaching the stage.
  const std::vector<int32_t>& order = graph.dag().order();
  for (int32_t v : order) {
    if (owner[v] == s) continue;
    for (int32_t u : graph.dag().Predecessors(v)) below[v] = below[v] || below[u] || owner[u] == s;
  }
  for (auto v = order.rbegin(); v != order.rend(); ++v) {
    if (owner[*v] == s) continue;
    for (int32_t w : graph.dag().Successors(*v)) above[*v] = above[*v] || above[w] || owner[w] == s;
    if (above[*v] && below[*v]) return NodeId(*v);
  }
  return NodeId();
}

// C1, second part, and C2: convex stages, every data dependency an edge, and stages in topological
// order.
absl::Status CheckEdges(const Graph& graph, const Strategy& strategy) {
  const std::vector<StageEdge> data = DataEdges(graph, strategy.stages);
  // Stages in topological order are convex; only otherwise is it worth to find out what is wrong.
  if (std::any_of(data.begin(), data.end(), [](const StageEdge& e) { return e.to < e.from; })) {
    const std::vector<StageId> owner = StageOwners(graph, strategy.stages);
    for (size_t s = 0; s < strategy.stages.size(); ++s) {
      const NodeId between = NodeBetween(graph, owner, StageId(static_cast<int64_t>(s)));
      if (between.valid()) {
        return Broken("C1: stage ", s, " is not convex: a path leaves it through ",
                      Quoted(graph, between));
      }
    }
  }
  if (!std::is_sorted(strategy.edges.begin(), strategy.edges.end()) ||
      std::adjacent_find(strategy.edges.begin(), strategy.edges.end()) != strategy.edges.end()) {
    return Broken("C2: edges are not sorted and unique");
  }
  for (const StageEdge& edge : data) {
    if (!std::binary_search(strategy.edges.begin(), strategy.edges.end(), edge)) {
      return Broken("C2: stage ", edge.to.value(), " reads from stage ", edge.from.value(),
                    " but there is no edge between them");
    }
  }
  if (auto dag = StageGraph(strategy); !dag.ok()) return Broken("C2: ", dag.status().message());
  for (const StageEdge& edge : strategy.edges) {
    if (edge.to < edge.from) {
      return Broken("C2: edge ", edge.from.value(), " -> ", edge.to.value(),
                    ": stages are not listed in topological order");
    }
    const bool chains =
        strategy.kind == StrategyKind::kSequential && edge.to.value() == edge.from.value() + 1;
    if (!chains && !std::binary_search(data.begin(), data.end(), edge)) {
      return Broken("C2: edge ", edge.from.value(), " -> ", edge.to.value(), " carries no data");
    }
  }
  for (size_t s = 1; strategy.kind == StrategyKind::kSequential && s < strategy.stages.size();
       ++s) {
    const StageEdge chain{StageId(static_cast<int64_t>(s) - 1), StageId(static_cast<int64_t>(s))};
    if (!std::binary_search(strategy.edges.begin(), strategy.edges.end(), chain)) {
      return Broken("C2: a sequential strategy has no edge ", s - 1, " -> ", s);
    }
  }
  return absl::OkStatus();
}

// C3: every stage has devices, each once. Stages may share a device and devices may stay idle.
// Without a cluster they have no names.
absl::Status CheckDevices(const Cluster* cluster, const Strategy& strategy) {
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    const Stage& stage = strategy.stages[s];
    if (stage.devices.empty()) return Broken("C3: stage ", s, " has no device");
    std::vector<DeviceId> devices = stage.devices;
    std::sort(devices.begin(), devices.end());
    const auto twice = std::adjacent_find(devices.begin(), devices.end());
    if (twice != devices.end()) {
      const std::string name =
          cluster == nullptr ? "" : absl::StrCat(" \"", cluster->device(*twice).name, "\"");
      return Broken("C3: stage ", s, " lists device ", twice->value(), name, " twice");
    }
    if (static_cast<int64_t>(devices.size()) > stage.micro_batch) {
      return Broken("C3: stage ", s, " has ", devices.size(), " devices for micro-batches of ",
                    stage.micro_batch, " samples");
    }
  }
  return absl::OkStatus();
}

// C4, as far as it shows before lowering: batches and schedules make sense. Validate() proves the
// order of a program's tasks.
absl::Status CheckSchedules(const Strategy& strategy) {
  if (strategy.mini_batch < 1 || strategy.mini_batch > kMostSamples) {
    return Broken("C4: mini_batch is ", strategy.mini_batch, ", not from 1 to ", kMostSamples);
  }
  if (strategy.bucket_bytes < 0)
    return Broken("C4: bucket_bytes is negative: ", strategy.bucket_bytes);
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    const int64_t micro_batch = strategy.stages[s].micro_batch;
    const StageSchedule& schedule = strategy.stages[s].schedule;
    if (micro_batch < 1 || strategy.mini_batch % micro_batch != 0) {
      return Broken("C4: stage ", s, ": micro-batch ", micro_batch,
                    " does not divide the mini-batch ", strategy.mini_batch);
    }
    if (schedule.k < 1) return Broken("C4: stage ", s, ": k is ", schedule.k, ", not positive");
    const int64_t least = std::min(schedule.k * micro_batch, strategy.mini_batch);
    if (schedule.in_flight < least || schedule.in_flight > strategy.mini_batch ||
        schedule.in_flight % micro_batch != 0) {
      return Broken("C4: stage ", s, ": ", schedule.in_flight,
                    " samples in flight is not a multiple of the micro-batch ", micro_batch,
                    " from ", least, " to ", strategy.mini_batch);
    }
  }
  return absl::OkStatus();
}

// What C4 asks of the stage of a node that must see the whole mini-batch, and the way out.
absl::Status NotWhole(const Graph& graph, const Strategy& strategy, size_t s, NodeId node) {
  const Stage& stage = strategy.stages[s];
  const std::string& module = graph.node(node).module;
  const bool normalisation = IsBatchNormalisation(graph.node(node));
  std::string why = "its result depends on which samples share a forward pass";
  if (normalisation && strategy.batch_statistics == BatchStatistics::kSynchronised) {
    why = "its statistics cannot be synchronised, because stages exchange nothing inside a layer";
  }
  return Broken("C4: stage ", s, ": ", Quoted(graph, node),
                module.empty() ? "" : absl::StrCat(" of module \"", module, "\""),
                " needs the whole mini-batch of ", strategy.mini_batch,
                " samples in one pass on one device (", why,
                "), but the stage has micro-batches of ", stage.micro_batch, " on ",
                stage.devices.size(), stage.devices.size() == 1 ? " device" : " devices",
                "; give it micro-batches of ", strategy.mini_batch, " on one device",
                normalisation ? ", or take the statistics over what a device has of a micro-batch "
                                "(--batch-statistics micro)"
                              : "");
}

// C4: what runs together. Nodes that depend on it see the whole mini-batch; the graph's bounds hold
// for every share.
absl::Status CheckPasses(const Graph& graph, const Strategy& strategy) {
  const SampleBounds bounds = graph.samples();
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    const Stage& stage = strategy.stages[s];
    const auto replicas = static_cast<int64_t>(stage.devices.size());
    if (!SharesWithin(bounds, stage.micro_batch, replicas)) {
      const int64_t share = stage.micro_batch / replicas;
      const bool few = share < bounds.least;
      return Broken("C4: stage ", s, ": micro-batches of ", stage.micro_batch, " on ", replicas,
                    replicas == 1 ? " device" : " devices", " make forward passes of ",
                    few ? share : (stage.micro_batch + replicas - 1) / replicas,
                    " samples, and the model takes ", few ? "at least " : "at most ",
                    few ? bounds.least : bounds.most, " at once");
    }
    if (replicas == 1 && stage.micro_batch == strategy.mini_batch) continue;
    for (NodeId node : stage.nodes) {
      if (NeedsWholeBatch(graph.node(node), strategy.batch_statistics))
        return NotWhole(graph, strategy, s, node);
    }
  }
  return absl::OkStatus();
}

// What an asynchronous strategy may be: updates follow every micro-batch, so stages agree on what
// one is, and a device has the weight versions of one stage.
absl::Status CheckAsynchronous(const Strategy& strategy) {
  if (strategy.asynchronous && strategy.optimizer_sharding != OptimizerSharding::kNone) {
    return Broken(
        "C4: an asynchronous strategy keeps the optimizer's state whole on every replica, "
        "and this one shares out its ",
        OptimizerShardingName(strategy.optimizer_sharding));
  }
  if (!strategy.asynchronous) {
    if (!strategy.vertical_sync) return absl::OkStatus();
    return Broken("C4: vertical sync is of asynchronous strategies, and this one is synchronous");
  }
  std::map<DeviceId, size_t> stage_of;
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    const Stage& stage = strategy.stages[s];
    if (stage.micro_batch != strategy.stages[0].micro_batch) {
      return Broken("C4: an asynchronous strategy has equal micro-batches, and stage ", s, " has ",
                    stage.micro_batch, " samples where stage 0 has ",
                    strategy.stages[0].micro_batch);
    }
    if (stage.schedule.k != 1)
      return Broken("C4: an asynchronous strategy has k = 1, and stage ", s, " ", stage.schedule.k);
    for (DeviceId device : stage.devices) {
      const auto [other, first] = stage_of.try_emplace(device, s);
      if (!first) {
        return Broken("C3: device ", device.value(), " has stages ", other->second, " and ", s,
                      "; of an asynchronous strategy it has one");
      }
    }
  }
  return absl::OkStatus();
}

// The size of the program: shares of micro-batches, and at most as many transfers on an edge as
// both its stages have shares. REQUIRES: CheckIds, CheckSchedules.
absl::Status CheckSize(const Strategy& strategy) {
  const int64_t most = strategy.asynchronous ? kMostPieces / kUnrolledSteps : kMostPieces;
  const auto pieces_of = [&](const Stage& stage) {
    return strategy.mini_batch / stage.micro_batch * static_cast<int64_t>(stage.devices.size());
  };
  std::vector<int64_t> edges(strategy.stages.size(), 1);
  for (const StageEdge& edge : strategy.edges) {
    ++edges[edge.from.index()];
    ++edges[edge.to.index()];
  }
  int64_t total = 0;
  size_t largest = 0;
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    const int64_t pieces = pieces_of(strategy.stages[s]);
    if (pieces > pieces_of(strategy.stages[largest])) largest = s;
    total += std::min(pieces, kMostPieces + 1) * edges[s];
    if (total > most) break;
  }
  if (total <= most) return absl::OkStatus();
  const Stage& stage = strategy.stages[largest];
  return Broken("C4: stage ", largest, ": ", strategy.mini_batch / stage.micro_batch,
                " micro-batches of ", stage.micro_batch, " samples on ", stage.devices.size(),
                " devices make the schedule too long: more than ", most,
                " pieces in all stages and edges; a larger micro-batch makes it shorter");
}

absl::Status CheckOn(const Cluster* cluster, int32_t devices, const Graph& graph,
                     const Strategy& strategy) {
  RETURN_IF_ERROR(CheckIds(graph, devices, strategy));
  RETURN_IF_ERROR(CheckSchedules(strategy));
  RETURN_IF_ERROR(CheckSize(strategy));
  RETURN_IF_ERROR(CheckDevices(cluster, strategy));
  RETURN_IF_ERROR(CheckAsynchronous(strategy));
  RETURN_IF_ERROR(CheckPartition(graph, strategy));
  RETURN_IF_ERROR(CheckState(graph, strategy));
  RETURN_IF_ERROR(CheckPasses(graph, strategy));
  RETURN_IF_ERROR(CheckStageOrder(graph, strategy));
  RETURN_IF_ERROR(CheckOrders(graph, strategy));
  return CheckEdges(graph, strategy);
}

}  // namespace

absl::Status CheckStrategy(const Graph& graph, const Cluster& cluster, const Strategy& strategy) {
  return CheckOn(&cluster, cluster.size(), graph, strategy);
}

absl::Status CheckStrategy(const Graph& graph, int32_t devices, const Strategy& strategy) {
  return CheckOn(nullptr, devices, graph, strategy);
}

}  // namespace stagewright
