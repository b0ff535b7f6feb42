#include "planner_service/front_door/check_times.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cost/node_weights.h"
#include "common/cost/value_bytes.h"

namespace stagewright {
namespace {

// In ns.
std::string Years(double time) {
  return absl::StrCat(time / static_cast<double>(kLongestStep), " years");
}

// What updates of all parameters take, and passes and messages of every node for every sample.
double FixedCosts(const Graph& graph, const DeviceKind& kind, int64_t mini_batch) {
  constexpr double kResident = 4;  // A parameter, its gradient and two moments.
  double bytes = 0;
  for (const Parameter& parameter : graph.parameters())
    bytes += static_cast<double>(parameter.SizeBytes());
  for (const Node& node : graph.nodes()) {
    if (node.cost.has_value()) bytes += static_cast<double>(node.cost->parameter_bytes);
  }
  const auto passes = static_cast<double>(graph.size()) * static_cast<double>(mini_batch);
  return 2e9 * kResident * bytes / UpdateRate(kind) +
         static_cast<double>(graph.parameters().size()) *
             static_cast<double>(kind.parameter_overhead) +
         passes * static_cast<double>(kind.pass_overhead + 2 * kind.message_overhead +
                                      kind.step_overhead);
}

absl::Status CheckKindTimes(const Graph& graph, const DeviceKind& kind, const CostModel& costs,
                            int64_t mini_batch) {
  std::vector<double> at_once = NodeWeights(graph, costs, kind, mini_batch);
  const std::vector<double> one = NodeWeights(graph, costs, kind, 1);
  double sum = 0;
  size_t slowest = 0;
  for (size_t v = 0; v < one.size(); ++v) {
    at_once[v] = std::max(at_once[v], one[v] * static_cast<double>(mini_batch));
    sum += at_once[v];
    if (at_once[v] > at_once[slowest]) slowest = v;
  }
  const double fixed = FixedCosts(graph, kind, mini_batch);
  sum += fixed;
  if (sum <= static_cast<double>(kLongestStep)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cluster: on a device of kind \"", kind.name, "\" a step takes ", Years(sum),
                   ", more than one: node \"", graph.node(NodeId(slowest)).name, "\" alone ",
                   Years(at_once[slowest]), ", updates and fixed costs ", Years(fixed),
                   "; are its rates, latencies or measured times what was meant?"));
}

// All that may ever be sent in a step, in bytes.
double BytesOf(const MessageTypes& types, int64_t mini_batch) {
  const Graph& graph = types.graph();
  double bytes = 0;
  for (int32_t v = 0; v < graph.size(); ++v) {
    const Node& node = graph.node(NodeId(v));
    const size_t results = node.cost.has_value() ? 1 : node.outputs.size();
    for (size_t i = 0; i < results; ++i) {
      const ValueRef value{NodeId(v), static_cast<int32_t>(i)};
      bytes += static_cast<double>(ValueBytesPerSample(types, value, mini_batch)) *
               static_cast<double>(mini_batch);
    }
    if (node.cost.has_value()) bytes += static_cast<double>(node.cost->parameter_bytes);
  }
  for (const Parameter& parameter : graph.parameters())
    bytes += static_cast<double>(parameter.SizeBytes());
  return bytes;
}

}  // namespace

absl::Status CheckTimes(const Graph& graph, const Cluster& cluster, const CostModel& costs,
                        int64_t mini_batch) {
  for (const DeviceKind& kind : cluster.kinds())
    RETURN_IF_ERROR(CheckKindTimes(graph, kind, costs, mini_batch));
  const double bytes = BytesOf(MessageTypes(graph, costs.precision()), mini_batch);
  const double messages = static_cast<double>(graph.size()) * static_cast<double>(mini_batch);
  for (const Link& link : cluster.links()) {
    const double time =
        messages * static_cast<double>(link.latency) + bytes / link.bytes_per_second * 1e9;
    if (time <= static_cast<double>(kLongestStep)) continue;
    return absl::InvalidArgumentError(absl::StrCat("cluster: over link \"", link.name,
                                                   "\" the messages of a step take ", Years(time),
                                                   ", more than one: latency_ns ", link.latency,
                                                   ", bytes_per_second ", link.bytes_per_second));
  }
  return absl::OkStatus();
}

}  // namespace stagewright
