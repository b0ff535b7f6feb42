#include "planner_service/planner/fit.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cost/parameters.h"
#include "common/memory/stage_costs.h"
#include "common/rewrite/operator_cut.h"

namespace stagewright {
namespace {

// Bytes that hold these nodes' parameters throughout a job.
Bytes Resident(const Graph& graph, const std::vector<NodeId>& nodes, Optimizer optimizer) {
  ProgramStage stage;
  stage.nodes = nodes;
  return ResidentBytesOf(graph, {stage}, {StageId(0)}, optimizer, /*training=*/true);
}

struct Need {
  Bytes resident = 0;
  Bytes resident_sgd = 0;  // `resident` with plain SGD.
  // `resident` where all devices are replicas that share out the optimizer's state.
  Bytes resident_shared = 0;
  Bytes gradients = 0;    // The part of `resident` that is not there before a backward pass.
  Bytes activations = 0;  // What one sample needs.
  Bytes Total() const { return resident + std::max<Bytes>(activations - gradients, 0); }
};

Need NeedOf(const Problem& problem, const Operator& op) {
  Need need;
  need.resident = Resident(*problem.graph, op.nodes, problem.optimizer);
  need.resident_sgd = Resident(*problem.graph, op.nodes, Optimizer::kSgd);
  const Bytes state = need.resident - need.resident_sgd;
  need.resident_shared = need.resident_sgd + state / problem.cluster->size();
  if (problem.optimizer_sharding != OptimizerSharding::kNone) need.resident = need.resident_shared;
  ProgramStage stage;
  stage.nodes = op.nodes;
  need.gradients = GradientBytesOf(*problem.graph, {stage}, {StageId(0)});
  for (NodeId node : op.nodes) {
    need.activations += problem.costs->SavedBytes(node, 1);
  }
  return need;
}

const Device& LargestDevice(const Problem& problem) {
  const auto devices = problem.cluster->devices();
  return *std::max_element(devices.begin(), devices.end(),
                           [](const Device& a, const Device& b) { return a.memory < b.memory; });
}

struct TooLarge {
  const Operator* op;
  Need need;
};

// What needs most of all that is larger than every device.
std::optional<TooLarge> WorstOperator(const Problem& problem) {
  std::optional<TooLarge> worst;
  Bytes least = LargestDevice(problem).memory;
  for (const Operator& op : problem.operators->operators()) {
    const Need need = NeedOf(problem, op);
    if (need.Total() <= least) continue;
    least = need.Total();
    worst = {&op, need};
  }
  return worst;
}

// The node of the operator with the most parameters, the first of several.
NodeId HeaviestNode(const Problem& problem, const Operator& op) {
  NodeId heaviest = op.nodes.front();
  Bytes most = -1;
  for (NodeId node : op.nodes) {
    const Bytes bytes = Resident(*problem.graph, {node}, problem.optimizer);
    if (bytes <= most) continue;
    most = bytes;
    heaviest = node;
  }
  return heaviest;
}

std::optional<std::string> OperatorTooLarge(const Problem& problem) {
  const std::optional<TooLarge> found = WorstOperator(problem);
  if (!found.has_value()) return std::nullopt;
  const Operator* worst = found->op;
  const Need& need = found->need;
  const Device& largest = LargestDevice(problem);
  std::string help = absl::StrCat("a device with at least ", FormatBytes(need.Total()));
  if (need.resident_sgd + need.activations <= largest.memory) {
    absl::StrAppend(&help, ", or plain SGD, with which it needs ",
                    FormatBytes(need.resident_sgd + need.activations));
  } else {
    absl::StrAppend(&help, ", or a model in which it is split");
  }
  const NodeId heaviest = HeaviestNode(problem, *worst);
  if (CutOf(*problem.graph, heaviest).ok()) {
    absl::StrAppend(&help, ", or the operator in parallel parts (--split-operators ",
                    problem.graph->node(heaviest).name, "=2)");
  }
  if (need.resident_shared < need.resident &&
      need.resident_shared + need.activations <= largest.memory) {
    absl::StrAppend(&help, ", or replicas that share out the optimizer's state ",
                    "(--shard-optimizer states)");
  }
  return absl::StrCat("operator '", worst->name, "' alone needs ", FormatBytes(need.Total()), " (",
                      FormatBytes(need.resident), " for parameters, ",
                      FormatBytes(need.activations), " for one sample), but the largest device '",
                      largest.name, "' has ", FormatBytes(largest.memory), ": ",
                      FormatBytes(need.Total() - largest.memory),
                      " too much; what would make it fit: ", help);
}

std::optional<std::string> ModelTooLarge(const Problem& problem) {
  std::vector<NodeId> nodes;
  for (const Operator& op : problem.operators->operators()) {
    nodes.insert(nodes.end(), op.nodes.begin(), op.nodes.end());
  }
  Bytes memory = 0;
  for (const Device& device : problem.cluster->devices()) memory += device.memory;
  const Bytes need = Resident(*problem.graph, nodes, problem.optimizer);
  if (need <= memory) return std::nullopt;
  const Bytes sgd = Resident(*problem.graph, nodes, Optimizer::kSgd);
  const Bytes each = memory / problem.cluster->size();
  std::string help =
      absl::StrCat("at least ", (need + each - 1) / each, " devices of ", FormatBytes(each));
  if (sgd <= memory)
    absl::StrAppend(&help, ", or plain SGD, with which they need ", FormatBytes(sgd));
  return absl::StrCat("the parameters with their gradients and optimizer state need ",
                      FormatBytes(need), ", but the ", problem.cluster->size(), " devices have ",
                      FormatBytes(memory), " together: ", FormatBytes(need - memory),
                      " too much; what would make it fit: ", help);
}

}  // namespace

std::optional<NodeId> NodeTooLarge(const Problem& problem) {
  const std::optional<TooLarge> worst = WorstOperator(problem);
  if (!worst.has_value()) return std::nullopt;
  return HeaviestNode(problem, *worst->op);
}

std::optional<std::string> WhyNothingFits(const Problem& problem) {
  if (auto reason = OperatorTooLarge(problem)) return reason;
  return ModelTooLarge(problem);
}

}  // namespace stagewright
