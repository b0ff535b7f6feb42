#include "planner_service/planners/drl_pp/features.h"

#include <algorithm>

#include "common/cost/value_bytes.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

enum Column { kInDegree = kNodeTypes, kInBytes, kOutDegree, kOutBytes, kParameterBytes, kTime };

// What came to be told from matrix products later is one of them here: the columns are few.
int TypeOf(const Node& node) {
  if (node.cost.has_value()) return kNodeTypes - 1;
  AtenKind kind = KindOfTarget(node.target);
  if (kind == AtenKind::kContraction || kind == AtenKind::kRecurrent) kind = AtenKind::kMatmul;
  return static_cast<int>(kind);
}

double ParameterBytesOf(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (node.cost.has_value()) return static_cast<double>(node.cost->parameter_bytes);
  double bytes = 0;
  for (ParameterId p : graph.Parameters(id)) {
    bytes += static_cast<double>(graph.parameter(p).SizeBytes());
  }
  return bytes;
}

// Bytes of a micro-batch of one sample over every edge between groups.
void AddTraffic(const Problem& problem, const std::vector<int32_t>& group_of,
                std::vector<std::vector<double>>& columns) {
  const Graph& graph = *problem.graph;
  const MessageTypes types(graph, problem.costs->precision());
  for (int32_t v = 0; v < graph.size(); ++v) {
    const OperatorId to = problem.operators->owner(NodeId(v));
    if (!to.valid()) continue;
    ForEachRead(graph, NodeId(v), [&](const ValueRef& value) {
      const OperatorId from = problem.operators->owner(value.node);
      if (!from.valid() || group_of[from.index()] == group_of[to.index()]) return;
      const auto bytes = static_cast<double>(ValueBytesPerSample(types, value, 1));
      columns[group_of[to.index()]][kInBytes] += bytes;
      columns[group_of[from.index()]][kOutBytes] += bytes;
    });
  }
}

void Normalize(std::vector<std::vector<double>>& rows, std::vector<float>& out) {
  for (int column = kNodeTypes; column < kNodeFeatures; ++column) {
    double largest = 0;
    for (const auto& row : rows) largest = std::max(largest, row[column]);
    for (auto& row : rows) row[column] = largest > 0 ? row[column] / largest : 0;
  }
  for (const auto& row : rows) {
    for (double value : row) out.push_back(static_cast<float>(value));
  }
}

}  // namespace

std::vector<double> OperatorTimes(const Problem& problem) {
  std::vector<double> times;
  for (const Operator& op : problem.operators->operators()) {
    double time = 0;
    for (NodeId node : op.nodes) {
      const OperatorTime t = problem.costs->Time(node, problem.cluster->kinds()[0], 1);
      time += static_cast<double>(t.forward) + static_cast<double>(t.backward);
    }
    times.push_back(time);
  }
  return times;
}

GroupFeatures MakeGroupFeatures(const Problem& problem, const Grouping& grouping) {
  const Graph& graph = *problem.graph;
  const size_t n = grouping.groups.size();
  const std::vector<double> times = OperatorTimes(problem);
  std::vector<int32_t> group_of(problem.operators->size());
  std::vector<std::vector<double>> rows(n, std::vector<double>(kNodeFeatures, 0));
  for (size_t g = 0; g < n; ++g) {
    double nodes = 0;
    for (int32_t op : grouping.groups[g]) {
      group_of[op] = static_cast<int32_t>(g);
      rows[g][kTime] += times[op];
      for (NodeId node : problem.operators->op(OperatorId(op)).nodes) {
        rows[g][TypeOf(graph.node(node))] += 1;
        rows[g][kParameterBytes] += ParameterBytesOf(graph, node);
        nodes += 1;
      }
    }
    for (int type = 0; type < kNodeTypes; ++type) rows[g][type] /= nodes;
    const auto v = static_cast<int32_t>(g);
    rows[g][kInDegree] = static_cast<double>(grouping.dag.Predecessors(v).size());
    rows[g][kOutDegree] = static_cast<double>(grouping.dag.Successors(v).size());
  }
  AddTraffic(problem, group_of, rows);

  GroupFeatures result;
  Normalize(rows, result.features);
  result.adjacency.assign(n * n, 0);
  for (size_t g = 0; g < n; ++g) {
    const auto v = static_cast<int32_t>(g);
    const auto in = grouping.dag.Predecessors(v);
    const auto out = grouping.dag.Successors(v);
    const float share = 1.0f / static_cast<float>(in.size() + out.size() + 1);
    result.adjacency[g * n + g] = share;
    for (int32_t u : in) result.adjacency[g * n + u] = share;
    for (int32_t u : out) result.adjacency[g * n + u] = share;
  }
  return result;
}

}  // namespace stagewright
