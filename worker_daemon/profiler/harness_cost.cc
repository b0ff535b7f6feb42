#include "worker_daemon/profiler/harness_cost.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/graph/graph.h"
#include "worker_daemon/device/work_clock.h"
#include "worker_daemon/profiler/operands.h"
#include "worker_daemon/profiler/operator_chain.h"
#include "worker_daemon/profiler/repeats.h"

namespace stagewright {
namespace {

constexpr int kLinks = 128;
constexpr int kWarmUps = 2;
constexpr int kRepeats = 15;
constexpr int64_t kWidth = 8;

// The product with a parameter has gradients flow through the second node.
absl::StatusOr<Graph> TinyGraph() {
  TensorMeta row;
  row.shape = {SymInt{1, 0}, SymInt{0, kWidth}};
  Parameter scale;
  scale.name = "scale";
  scale.shape = {kWidth};
  GraphData data;
  data.name = "tiny";
  data.inputs.push_back({"x", row, InputRole::kFeature});
  data.parameters.push_back(scale);
  const auto add = [&](const char* name, const char* target, std::vector<Argument> arguments,
                       TensorMeta result) {
    Node node;
    node.name = name;
    node.target = target;
    node.args = std::move(arguments);
    node.outputs = {std::move(result)};
    data.nodes.push_back(std::move(node));
    return Argument{ValueRef{NodeId(static_cast<int64_t>(data.nodes.size()) - 1), 0}};
  };
  const Argument product = add("product", "aten.mul.Tensor", {{InputId(0)}, {ParameterId(0)}}, row);
  const Argument tiny = add("tiny", "aten.neg.default", {product}, row);
  data.loss = std::get<ValueRef>(add("loss", "aten.mean.default", {tiny}, TensorMeta{}).value);
  return Graph::Create(std::move(data));
}

struct Times {
  std::vector<double> forward, backward;  // ns.
};

absl::Status RunOnce(OperatorChain& chain, at::Device device, Times& times) {
  const double start = WorkClock(device);
  RETURN_IF_ERROR(chain.Forward(kLinks));
  const double turned = WorkClock(device);
  RETURN_IF_ERROR(chain.Backward(OperatorChain::Part::kWhole));
  times.forward.push_back(1e9 * (turned - start));
  times.backward.push_back(1e9 * (WorkClock(device) - turned));
  return absl::OkStatus();
}

double Difference(const std::vector<double>& apart, const std::vector<double>& in_a_row) {
  return std::max(0.0, RobustMedian(apart) - RobustMedian(in_a_row)) / kLinks;
}

}  // namespace

absl::StatusOr<HarnessCost> MeasureHarness(at::Device device) {
  ASSIGN_OR_RETURN(const Graph graph, TinyGraph());
  const NodeId tiny(1);
  ASSIGN_OR_RETURN(const Operands operands, MakeOperands(graph, tiny, 1, {}, device));
  const auto make = [&](OperatorChain::Links links) {
    return OperatorChain::Create(graph, tiny, 1, operands, device, Precision::kGraph, links);
  };
  ASSIGN_OR_RETURN(const auto apart, make(OperatorChain::Links::kApart));
  ASSIGN_OR_RETURN(const auto in_a_row, make(OperatorChain::Links::kInARow));
  Times times_apart, times_in_a_row;
  for (int i = 0; i < kWarmUps + kRepeats; ++i) {
    if (i == kWarmUps) times_apart = times_in_a_row = {};
    RETURN_IF_ERROR(RunOnce(*apart, device, times_apart));
    RETURN_IF_ERROR(RunOnce(*in_a_row, device, times_in_a_row));
  }
  return HarnessCost{Difference(times_apart.forward, times_in_a_row.forward),
                     Difference(times_apart.backward, times_in_a_row.backward)};
}

}  // namespace stagewright
