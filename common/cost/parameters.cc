#include "common/cost/parameters.h"

#include <algorithm>

#include "common/training/autocast.h"

namespace stagewright {

Bytes ResidentBytes(const Parameter& parameter, Optimizer optimizer) {
  const Bytes size = parameter.SizeBytes();
  if (!parameter.trainable) return size;
  switch (optimizer) {
    case Optimizer::kSgd:
      return 2 * size;
    case Optimizer::kSgdMomentum:
      return 3 * size;
    case Optimizer::kAdam:
      return 4 * size;
  }
  return 4 * size;
}

Bytes ResidentBytes(const ProfiledCost& cost, Optimizer optimizer) {
  if (cost.resident_bytes.has_value()) return *cost.resident_bytes;
  return ResidentBytes(ProfiledParameter(cost), optimizer);
}

Bytes OptimizerStateBytes(const Parameter& parameter, Optimizer optimizer) {
  return ResidentBytes(parameter, optimizer) - ResidentBytes(parameter, Optimizer::kSgd);
}

Bytes OptimizerStateBytes(const ProfiledCost& cost, Optimizer optimizer) {
  return ResidentBytes(cost, optimizer) - ResidentBytes(cost, Optimizer::kSgd);
}

Bytes GradientBytes(const ProfiledCost& cost) {
  return cost.resident_bytes.has_value() ? Bytes(0) : ProfiledParameter(cost).SizeBytes();
}

HeldBytes BytesHeld(const Parameter& parameter, Optimizer optimizer) {
  const Bytes resident = ResidentBytes(parameter, optimizer);
  if (!parameter.trainable) return {.resident = resident};
  return {.resident = resident,
          .gradients = parameter.SizeBytes(),
          .trained = resident,
          .updated = 1,
          .state = OptimizerStateBytes(parameter, optimizer)};
}

HeldBytes BytesHeld(const ProfiledCost& cost, Optimizer optimizer) {
  const Bytes resident = ResidentBytes(cost, optimizer);
  return {.resident = resident,
          .gradients = cost.parameter_bytes,
          .trained = resident,
          .updated = cost.parameter_bytes > 0 ? 1 : 0,
          .state = OptimizerStateBytes(cost, optimizer)};
}

Bytes PassingSaves(Bytes gradients, Bytes saved, int64_t replicas) {
  if (replicas < 2) return 0;
  return std::min(gradients, saved) - (gradients + Bytes(replicas - 1)) / replicas;
}

Bytes CastBytes(const Parameter& parameter, Precision precision) {
  if (!IsMixed(precision) || parameter.dtype != DType::kFloat32) return 0;
  return parameter.Elements() * SizeOf(SmallerType(precision));
}

std::vector<bool> CastParameters(const Graph& graph, Precision precision) {
  std::vector<bool> cast(graph.parameters().size(), false);
  for (int32_t v = 0; IsMixed(precision) && v < graph.size(); ++v) {
    if (!CastsWeights(graph, NodeId(v), precision)) continue;
    for (ParameterId p : graph.Parameters(NodeId(v))) cast[p.index()] = true;
  }
  return cast;
}

namespace {

// A share of arbitrarily many may be empty.
HeldBytes LeastOf(HeldBytes bytes, OptimizerSharding sharding) {
  if (sharding == OptimizerSharding::kNone) return bytes;
  bytes.resident -= bytes.state;
  bytes.state = bytes.trained = 0;
  return bytes;
}

}  // namespace

HeldBytes LeastBytesHeld(const Parameter& parameter, Optimizer optimizer,
                         OptimizerSharding sharding) {
  HeldBytes bytes = BytesHeld(parameter, optimizer);
  bytes.resident -= bytes.gradients;
  return LeastOf(bytes, sharding);
}

HeldBytes LeastBytesHeld(const ProfiledCost& cost, Optimizer optimizer,
                         OptimizerSharding sharding) {
  HeldBytes bytes = BytesHeld(cost, optimizer);
  bytes.trained = std::min(bytes.resident, ResidentBytes(ProfiledParameter(cost), optimizer));
  if (sharding == OptimizerSharding::kGradients) bytes.resident -= GradientBytes(cost);
  return LeastOf(bytes, sharding);
}

Parameter ProfiledParameter(const ProfiledCost& cost) {
  Parameter parameter;
  parameter.shape = {(cost.parameter_bytes + SizeOf(parameter.dtype) - 1) /
                     SizeOf(parameter.dtype)};
  return parameter;
}

std::vector<ParameterId> ParametersOf(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::vector<ParameterId> result;
  for (NodeId id : nodes) {
    const auto used = graph.Parameters(id);
    result.insert(result.end(), used.begin(), used.end());
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

}  // namespace stagewright
