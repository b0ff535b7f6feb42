#include "common/lowering/reductions.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/cost/gradient_buckets.h"
#include "common/memory/gradient_parts.h"
#include "common/strategy/strategy.h"

namespace stagewright {
namespace {

template <typename T>
void SortUnique(std::vector<T>& items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

std::vector<DeviceId> DevicesOf(const std::vector<ProgramStage>& stages,
                                const std::vector<StageId>& holders) {
  std::vector<DeviceId> devices;
  for (StageId s : holders) {
    const auto& replicas = stages[s.index()].devices;
    devices.insert(devices.end(), replicas.begin(), replicas.end());
  }
  SortUnique(devices);
  return devices;
}

// By node of the stage: when the last backward pass has come to it, these gradients are complete.
struct CompletedGradients {
  std::vector<Bytes> bytes;
  std::vector<std::vector<ParameterId>> parameters;
};

// `own`: the parameters that the stage alone holds. The first node that uses one is the last that
// the backward pass comes to.
CompletedGradients CompletedIn(const Graph& graph, const std::vector<NodeId>& nodes,
                               const std::vector<ParameterId>& own) {
  CompletedGradients completed{std::vector<Bytes>(nodes.size(), 0), {}};
  completed.parameters.resize(nodes.size());
  std::set<ParameterId> rest(own.begin(), own.end());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (const auto& cost = graph.node(nodes[i]).cost) completed.bytes[i] = cost->parameter_bytes;
    for (ParameterId p : graph.Parameters(nodes[i])) {
      if (rest.erase(p) == 0) continue;
      completed.bytes[i] += graph.parameter(p).SizeBytes();
      completed.parameters[i].push_back(p);
    }
  }
  return completed;
}

// What the replica that takes longest has left of its last backward pass, by node.
std::vector<double> TimeLeft(const ProgramStage& stage, const BucketRule& rule, bool split) {
  std::vector<double> longest(stage.nodes.size(), 0);
  std::set<std::pair<int32_t, int64_t>> seen;
  const auto replicas = static_cast<int32_t>(stage.devices.size());
  for (int32_t r = 0; r < replicas; ++r) {
    const int64_t samples = ReplicaShare({0, stage.micro_batch}, r, replicas).size();
    const int32_t kind = rule.cluster->device(stage.devices[r]).kind;
    if (!seen.insert({kind, samples}).second) continue;
    std::vector<double> backward;
    for (NodeId node : stage.nodes) {
      const OperatorTime time = rule.costs->Time(node, rule.cluster->kinds()[kind], samples);
      backward.push_back(static_cast<double>(split ? time.backward_weight : time.backward));
    }
    std::vector<double> left = TimeLeftAt(backward);
    if (longest.empty() || left.back() > longest.back()) longest = std::move(left);
  }
  return longest;
}

// Than what an optimizer step costs besides going over memory.
bool LastsLonger(const GradientBucket& bucket, const ProgramStage& stage, const Cluster& cluster,
                 bool sharded) {
  Nanos step = 0;
  for (DeviceId device : stage.devices) {
    const DeviceKind& kind = cluster.kind_of(device);
    step = std::max(step, kind.kernel_overhead + kind.step_overhead);
  }
  const auto time = sharded ? ShareExchangeTime : AllReduceTime;
  return time(cluster, stage.devices, bucket.bytes) > step;
}

// `whole` in the order in which it becomes complete.
std::vector<PlannedReduction> InBuckets(const Graph& graph, const ProgramStage& stage,
                                        Reduction whole, const BucketRule& rule, bool split) {
  const CompletedGradients completed = CompletedIn(graph, stage.nodes, whole.parameters);
  std::vector<GradientBucket> buckets;
  if (rule.bytes > 0) {
    buckets = CutGradients(completed.bytes, rule.bytes);
  } else if (rule.cluster != nullptr) {
    const AllReduceLines lines = FitAllReduceLines(*rule.cluster, whole.devices);
    buckets = BestBuckets(completed.bytes, TimeLeft(stage, rule, split),
                          whole.sharded ? HalfOf(lines) : lines);
  }
  if (buckets.size() < 2) return {{std::move(whole)}};
  std::vector<PlannedReduction> reductions;
  size_t end = stage.nodes.size();
  for (const GradientBucket& bucket : buckets) {
    Reduction part = whole;
    part.parameters.clear();
    part.bytes = bucket.bytes;
    for (size_t i = bucket.mark; i < end; ++i) {
      const auto& here = completed.parameters[i];
      part.parameters.insert(part.parameters.end(), here.begin(), here.end());
    }
    std::sort(part.parameters.begin(), part.parameters.end());
    end = bucket.mark;
    reductions.push_back({std::move(part), bucket.mark});
  }
  reductions.back().update_before =
      rule.cluster == nullptr || LastsLonger(buckets.back(), stage, *rule.cluster, whole.sharded);
  return reductions;
}

}  // namespace

std::vector<PlannedReduction> MakeReductions(const Graph& graph,
                                             const std::vector<ProgramStage>& stages,
                                             const BucketRule& rule) {
  std::vector<std::vector<StageId>> holders(graph.parameters().size());
  // One per set of stages, so that a stage's gradients are summed while others still compute.
  std::map<std::vector<StageId>, Reduction> groups;
  const auto add = [&](const std::vector<StageId>& of, Bytes bytes) -> Reduction* {
    std::vector<DeviceId> devices = DevicesOf(stages, of);
    if (devices.size() < 2) return nullptr;
    Reduction& group = groups[of];
    group.devices = std::move(devices);
    group.bytes += bytes;
    group.stages = of;
    return &group;
  };
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageId stage(static_cast<int64_t>(s));
    Bytes profiled = 0;
    for (NodeId node : stages[s].nodes) {
      if (graph.node(node).cost.has_value()) profiled += graph.node(node).cost->parameter_bytes;
      for (ParameterId p : graph.Parameters(node)) {
        auto& of = holders[p.index()];
        if (of.empty() || of.back() != stage) of.push_back(stage);
      }
    }
    if (profiled > 0) add({stage}, profiled);
  }
  for (size_t p = 0; p < holders.size(); ++p) {
    const Parameter& parameter = graph.parameters()[p];
    if (!parameter.trainable || holders[p].empty()) continue;
    Reduction* group = add(holders[p], parameter.SizeBytes());
    if (group) group->parameters.push_back(ParameterId(static_cast<int64_t>(p)));
  }

  std::vector<Reduction> in_order;
  for (auto& [of, group] : groups) in_order.push_back(std::move(group));
  std::stable_sort(in_order.begin(), in_order.end(), [](const Reduction& a, const Reduction& b) {
    return a.stages.front() > b.stages.front();
  });
  std::vector<PlannedReduction> reductions;
  for (Reduction& group : in_order) {
    const size_t first = group.stages.front().index();
    if (group.stages.size() > 1 || !stages[first].has_backward) {
      reductions.push_back({std::move(group)});
      continue;
    }
    const bool split = !rule.split.empty() && rule.split[first];
    group.sharded = rule.sharding != OptimizerSharding::kNone;
    group.each_pass = rule.sharding == OptimizerSharding::kGradients;
    for (PlannedReduction& part : InBuckets(graph, stages[first], std::move(group), rule, split))
      reductions.push_back(std::move(part));
  }
  for (PlannedReduction& planned : reductions)
    planned.copy = LargestGradientCopy(graph, planned.reduction.parameters);
  return reductions;
}

Reduction MakeNormReduction(const std::vector<ProgramStage>& stages) {
  Reduction norm;
  for (size_t s = 0; s < stages.size(); ++s)
    norm.stages.push_back(StageId(static_cast<int64_t>(s)));
  norm.devices = DevicesOf(stages, norm.stages);
  norm.bytes = sizeof(double);
  norm.gradient_norm = true;
  return norm;
}

}  // namespace stagewright
