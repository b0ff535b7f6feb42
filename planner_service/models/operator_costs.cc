#include "planner_service/models/operator_costs.h"

#include <algorithm>

#include "common/cost/parameters.h"
#include "common/cost/retention.h"
#include "common/cost/value_bytes.h"

namespace stagewright {

OperatorCosts::OperatorCosts(const Problem& problem)
    : problem_(&problem), tree_(Decompose(problem.operators->dag())) {
  for (const Operator& op : problem.operators->operators()) {
    replicated_.push_back(ReplicatedInto(*problem.graph, *problem.operators, op.nodes));
    has_backward_.push_back(std::any_of(op.nodes.begin(), op.nodes.end(), [&](NodeId node) {
      return problem.graph->needs_backward(node);
    }));
  }
  CollectValues();
  CollectParameters();
}

void OperatorCosts::CollectValues() {
  const Graph& graph = *problem_->graph;
  const auto kept = KeptOutputs(graph);
  std::map<ValueRef, int32_t> index;
  const auto read = [&](int32_t op, NodeId reader) {
    ForEachRead(graph, reader, [&](ValueRef value) {
      const OperatorId owner = problem_->operators->owner(value.node);
      if (!owner.valid() || owner.value() == op) return;
      const auto [it, added] = index.try_emplace(value, static_cast<int32_t>(values_.size()));
      const bool profiled = graph.node(value.node).cost.has_value();
      if (added) {
        // A value that the backward pass needs, or whose storage it needs, is saved anyway.
        const ValueRef storage = StorageOf(graph, value);
        const bool saved =
            graph.node(storage.node).cost.has_value() || kept[storage.node.index()][storage.output];
        values_.push_back({owner.value(),
                           ValueBytesPerSample(graph, value, 1),
                           saved ? 0 : ValueBytesPerSample(graph, storage, 1),
                           {}});
      }
      const bool gradient = graph.needs_backward(reader) && graph.needs_backward(value.node) &&
                            (profiled || IsFloating(graph.meta(value).dtype));
      std::vector<Use>& uses = values_[it->second].uses;
      if (uses.empty() || uses.back().consumer != op) uses.push_back({op, false});
      uses.back().gradient = uses.back().gradient || gradient;
    });
  };
  for (int32_t op = 0; op < problem_->operators->size(); ++op) {
    for (NodeId node : problem_->operators->op(OperatorId(op)).nodes) read(op, node);
    for (NodeId node : replicated_[op]) read(op, node);
  }
}

void OperatorCosts::CollectParameters() {
  const Graph& graph = *problem_->graph;
  for (const Operator& op : problem_->operators->operators()) {
    Bytes resident = 0;
    Bytes gradients = 0;
    Bytes trained = 0;
    const auto add = [&](const Parameter& parameter) {
      resident += ResidentBytes(parameter, problem_->optimizer);
      if (!parameter.trainable) return;
      gradients += parameter.SizeBytes();
      trained += ResidentBytes(parameter, problem_->optimizer);
    };
    for (ParameterId id : ParametersOf(graph, op.nodes)) add(graph.parameter(id));
    for (NodeId node : op.nodes) {
      const auto& cost = graph.node(node).cost;
      if (!cost.has_value()) continue;
      resident += ResidentBytes(*cost, problem_->optimizer);
      gradients += cost->parameter_bytes;
      trained += ResidentBytes(*cost, problem_->optimizer);
    }
    resident_.push_back(resident);
    gradients_.push_back(gradients);
    trained_.push_back(trained);
  }
}

const ShareTable& OperatorCosts::Share(int64_t samples) const {
  std::unique_ptr<ShareTable>& slot = shares_[samples];
  if (slot != nullptr) return *slot;
  slot = std::make_unique<ShareTable>();
  const CostModel& costs = *problem_->costs;
  for (const DeviceKind& kind : problem_->cluster->kinds()) {
    std::vector<OperatorTime>& times = slot->time.emplace_back(size());
    for (int32_t op = 0; op < size(); ++op) {
      for (NodeId node : problem_->operators->op(OperatorId(op)).nodes) {
        times[op] += costs.Time(node, kind, samples);
      }
      for (NodeId node : replicated_[op])
        times[op].forward += costs.Time(node, kind, samples).forward;
    }
  }
  slot->saved.assign(size(), 0);
  slot->workspace.assign(size(), 0);
  for (int32_t op = 0; op < size(); ++op) {
    const auto add = [&](NodeId node) {
      slot->saved[op] += costs.SavedBytes(node, samples);
      slot->workspace[op] = std::max(slot->workspace[op], costs.WorkspaceBytes(node, samples));
    };
    for (NodeId node : problem_->operators->op(OperatorId(op)).nodes) add(node);
    for (NodeId node : replicated_[op]) add(node);
  }
  return *slot;
}

}  // namespace stagewright
