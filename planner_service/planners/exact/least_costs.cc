#include "planner_service/planners/exact/least_costs.h"

#include <algorithm>

#include "common/cost/parameters.h"
#include "common/cost/value_bytes.h"

namespace stagewright {

LeastCosts::LeastCosts(const Problem& problem) : problem_(problem) {
  const auto n = static_cast<size_t>(problem.operators->size());
  resident_.resize(n);
  gradients_.resize(n);
  trained_.resize(n);
  CollectParameters();
  CollectValues();
}

void LeastCosts::CollectParameters() {
  const Graph& graph = *problem_.graph;
  std::vector<int32_t> user(graph.parameters().size(), -1);  // -2: several operators.
  const int32_t n = problem_.operators->size();
  for (int32_t op = 0; op < n; ++op) {
    for (ParameterId id : ParametersOf(graph, problem_.operators->op(OperatorId(op)).nodes)) {
      user[id.index()] = user[id.index()] == -1 ? op : -2;
    }
  }
  for (size_t p = 0; p < user.size(); ++p) {
    if (user[p] < 0) continue;
    const Parameter& parameter = graph.parameters()[p];
    resident_[user[p]] += ResidentBytes(parameter, problem_.optimizer);
    if (!parameter.trainable) continue;
    resident_[user[p]] -= parameter.SizeBytes();  // Its gradient, when all is saved.
    gradients_[user[p]] += parameter.SizeBytes();
    trained_[user[p]] += ResidentBytes(parameter, problem_.optimizer);
  }
  for (int32_t op = 0; op < n; ++op) {
    bool has_backward = false;
    for (NodeId node : problem_.operators->op(OperatorId(op)).nodes) {
      has_backward = has_backward || graph.needs_backward(node);
      const auto& cost = graph.node(node).cost;
      if (!cost) continue;
      resident_[op] += ResidentBytes(*cost, problem_.optimizer);
      gradients_[op] += cost->parameter_bytes;
      trained_[op] += std::min(ResidentBytes(*cost, problem_.optimizer),
                               ResidentBytes(ProfiledParameter(*cost), problem_.optimizer));
    }
    if (!has_backward) gradients_[op] = trained_[op] = 0;
  }
}

void LeastCosts::CollectValues() {
  const Graph& graph = *problem_.graph;
  std::map<ValueRef, size_t> index;
  for (int32_t op = 0; op < problem_.operators->size(); ++op) {
    for (NodeId node : problem_.operators->op(OperatorId(op)).nodes) {
      ForEachRead(graph, node, [&](ValueRef value) {
        const OperatorId producer = problem_.operators->owner(value.node);
        if (!producer.valid() || producer.value() == op) return;
        const bool profiled = graph.node(value.node).cost.has_value();
        const auto [it, added] = index.try_emplace(value, values_.size());
        if (added) {
          Bytes bytes = 0;
          if (profiled && graph.node(value.node).cost->edge_bytes.empty()) {
            bytes = ValueBytesPerSample(graph, value, 1);
          } else if (!profiled && graph.meta(value).IsBatched()) {
            bytes = graph.meta(value).SizeBytes(1);
          }
          values_.push_back({producer.value(), bytes, {}});
        }
        const bool gradient = graph.needs_backward(node) && graph.needs_backward(value.node) &&
                              (profiled || IsFloating(graph.meta(value).dtype));
        std::vector<Use>& uses = values_[it->second].uses;
        if (uses.empty() || uses.back().consumer != op) uses.push_back({op, false});
        uses.back().gradient = uses.back().gradient || gradient;
      });
    }
  }
}

const LeastCosts::Share& LeastCosts::Of(int64_t samples) {
  const auto [it, added] = shares_.try_emplace(samples);
  Share& share = it->second;
  if (!added) return share;
  const CostModel& costs = *problem_.costs;
  share.saved.resize(size());
  for (const DeviceKind& kind : problem_.cluster->kinds()) {
    std::vector<OperatorTime>& times = share.time.emplace_back(size());
    for (int32_t op = 0; op < size(); ++op) {
      for (NodeId node : problem_.operators->op(OperatorId(op)).nodes) {
        times[op] += costs.Time(node, kind, samples);
      }
    }
  }
  for (int32_t op = 0; op < size(); ++op) {
    for (NodeId node : problem_.operators->op(OperatorId(op)).nodes) {
      share.saved[op] += costs.SavedBytes(node, samples);
    }
  }
  return share;
}

}  // namespace stagewright
