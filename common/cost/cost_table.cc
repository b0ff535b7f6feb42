#include "common/cost/cost_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/cost/retention.h"
#include "common/cost/value_bytes.h"

namespace stagewright {

std::vector<OperatorTime> OwnTimes(const OperatorGraph& operators, const CostModel& costs,
                                   const DeviceKind& kind, int64_t samples) {
  std::vector<OperatorTime> times(operators.size());
  for (int32_t op = 0; op < operators.size(); ++op) {
    for (NodeId node : operators.op(OperatorId(op)).nodes) {
      times[op] += costs.Time(node, kind, samples);
    }
  }
  return times;
}

CostTable::CostTable(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                     const CostModel& costs, Optimizer optimizer, OptimizerSharding sharding)
    : graph_(&graph), operators_(&operators), cluster_(&cluster), costs_(&costs) {
  replicated_.reserve(operators.size());
  for (const Operator& op : operators.operators()) {
    replicated_.push_back(ReplicatedInto(graph, operators, op.nodes));
  }
  CollectValues();
  CollectParameters(optimizer, sharding);
}

// Replicated nodes read no others than replicated ones.
void CostTable::CollectValues() {
  const MessageTypes types(*graph_, costs_->precision());
  const auto kept = KeptOutputs(*graph_, costs_->precision());
  std::vector<std::vector<int32_t>> index(graph_->size());  // By node and output; -1: none yet.
  const auto add = [&](ValueRef value, OperatorId producer) {
    const auto& cost = graph_->node(value.node).cost;
    const Bytes bytes = ValueBytesPerSample(types, value, 1);
    const bool fixed = cost ? cost->edge_bytes.empty() : graph_->meta(value).IsBatched();
    // A value that the backward pass needs, or whose storage it needs, is saved anyway.
    const ValueRef storage = StorageOf(*graph_, value);
    const bool saved =
        graph_->node(storage.node).cost.has_value() || kept[storage.node.index()][storage.output];
    values_.push_back({producer.value(),
                       bytes,
                       fixed ? bytes : 0,
                       saved ? 0 : ValueBytesPerSample(types, storage, 1),
                       {}});
    return static_cast<int32_t>(values_.size()) - 1;
  };
  for (int32_t op = 0; op < size(); ++op) {
    for (NodeId reader : operators_->op(OperatorId(op)).nodes) {
      ForEachRead(*graph_, reader, [&](ValueRef value) {
        const OperatorId producer = operators_->owner(value.node);
        if (!producer.valid() || producer.value() == op) return;
        std::vector<int32_t>& row = index[value.node.index()];
        const auto output = static_cast<size_t>(value.output);
        if (row.size() <= output) row.resize(output + 1, -1);
        if (row[output] < 0) row[output] = add(value, producer);
        std::vector<Use>& uses = values_[row[output]].uses;
        if (uses.empty() || uses.back().consumer != op) uses.push_back({op, false});
        if (!graph_->needs_backward(reader) || !graph_->needs_backward(value.node)) return;
        uses.back().gradient |=
            graph_->node(value.node).cost.has_value() || IsFloating(graph_->meta(value).dtype);
      });
    }
  }
}

void CostTable::CollectParameters(Optimizer optimizer, OptimizerSharding sharding) {
  held_.resize(size());
  const std::vector<bool> cast = CastParameters(*graph_, costs_->precision());
  for (const Parameter& parameter : graph_->parameters()) {
    HeldBytes& held = of_parameter_.emplace_back(BytesHeld(parameter, optimizer));
    if (cast[of_parameter_.size() - 1]) held.resident += CastBytes(parameter, costs_->precision());
  }
  std::vector<int32_t> users(graph_->parameters().size(), 0);
  for (int32_t op = 0; op < size(); ++op) {
    Held& held = held_[op];
    const std::vector<NodeId>& nodes = operators_->op(OperatorId(op)).nodes;
    held.parameters = ParametersOf(*graph_, nodes);
    for (ParameterId id : held.parameters) {
      held.planned += of_parameter_[id.index()];
      ++users[id.index()];
    }
    for (NodeId node : nodes) {
      held.has_backward |= graph_->needs_backward(node);
      const auto& cost = graph_->node(node).cost;
      if (!cost.has_value()) continue;
      held.profiled += BytesHeld(*cost, optimizer);
      held.least += LeastBytesHeld(*cost, optimizer, sharding);
    }
    held.planned += held.profiled;
  }
  for (Held& held : held_) {
    for (ParameterId id : held.parameters) {
      if (users[id.index()] == 1)
        held.least += LeastBytesHeld(graph_->parameter(id), optimizer, sharding);
    }
    if (!held.has_backward) held.least.gradients = held.least.trained = 0;
  }
}

std::vector<CostTable::Exchange> CostTable::Exchanges(const std::vector<int32_t>& group,
                                                      CostView view) const {
  std::vector<Exchange> exchanges;
  for (const Value& value : values_) {
    const int32_t from = group[value.producer];
    const Bytes bytes =
        view == CostView::kPlanned ? value.bytes_per_sample : value.least_per_sample;
    const size_t first = exchanges.size();  // Where those of this value begin.
    for (const Use& use : value.uses) {
      const int32_t to = group[use.consumer];
      if (to == from) continue;
      size_t i = first;
      while (i < exchanges.size() && exchanges[i].to != to) ++i;
      if (i == exchanges.size()) exchanges.push_back({from, to, bytes, 0, false});
      if (!use.gradient) continue;
      exchanges[i].back = bytes;
      exchanges[i].gradient = true;
    }
  }
  std::sort(exchanges.begin(), exchanges.end(), [](const Exchange& a, const Exchange& b) {
    return std::tie(a.from, a.to) < std::tie(b.from, b.to);
  });
  size_t kept = 0;
  for (const Exchange& next : exchanges) {
    if (kept > 0 && exchanges[kept - 1].from == next.from && exchanges[kept - 1].to == next.to) {
      exchanges[kept - 1].there += next.there;
      exchanges[kept - 1].back += next.back;
      exchanges[kept - 1].gradient |= next.gradient;
    } else {
      exchanges[kept++] = next;
    }
  }
  exchanges.resize(kept);
  return exchanges;
}

std::vector<OperatorTime> CostTable::Times(const DeviceKind& kind, int64_t samples,
                                           CostView view) const {
  std::vector<OperatorTime> times = OwnTimes(*operators_, *costs_, kind, samples);
  if (view == CostView::kLeast) return times;
  for (int32_t op = 0; op < size(); ++op) {
    for (NodeId node : replicated_[op]) {
      times[op].forward += costs_->Time(node, kind, samples).forward;
    }
  }
  return times;
}

ShareTable CostTable::Memory(int64_t samples, CostView view) const {
  ShareTable table;
  table.saved.assign(size(), 0);
  table.workspace.assign(size(), 0);
  for (int32_t op = 0; op < size(); ++op) {
    const auto add = [&](NodeId node) {
      table.saved[op] += costs_->SavedBytes(node, samples);
      table.workspace[op] = std::max(table.workspace[op], costs_->WorkspaceBytes(node, samples));
    };
    for (NodeId node : operators_->op(OperatorId(op)).nodes) add(node);
    if (view == CostView::kLeast) continue;
    for (NodeId node : replicated_[op]) add(node);
  }
  return table;
}

ShareTable CostTable::ShareOn(const DeviceKind& kind, int64_t samples, CostView view) const {
  ShareTable table = Memory(samples, view);
  table.time.push_back(Times(kind, samples, view));
  return table;
}

const ShareTable& CostTable::Share(int64_t samples, CostView view) const {
  const auto [it, added] = shares_.try_emplace({samples, view});
  if (!added) return it->second;
  it->second = Memory(samples, view);
  for (const DeviceKind& kind : cluster_->kinds()) {
    it->second.time.push_back(Times(kind, samples, view));
  }
  return it->second;
}

}  // namespace stagewright
