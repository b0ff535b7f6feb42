#include "planner_service/evaluator/what_if.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/orders.h"
#include "common/strategy/stage_edges.h"

namespace stagewright {
namespace {

Cluster Rebuilt(ClusterData data) {
  auto cluster = Cluster::Create(std::move(data));
  CHECK(cluster.ok());  // Was valid, and the changes keep it so.
  return *std::move(cluster);
}

// The device that `d` reaches fastest; -1 if it is alone.
int32_t Nearest(const Cluster& cluster, int32_t d) {
  int32_t nearest = -1;
  for (int32_t e = 0; e < cluster.size(); ++e) {
    if (e == d) continue;
    if (nearest < 0 || cluster.route(DeviceId(d), DeviceId(e)).TransferTime(kMiB) <
                           cluster.route(DeviceId(d), DeviceId(nearest)).TransferTime(kMiB)) {
      nearest = e;
    }
  }
  return nearest;
}

class HalvedCosts : public CostModel {
 public:
  explicit HalvedCosts(const CostModel& costs) : costs_(costs) {}
  OperatorTime Time(NodeId node, const DeviceKind& kind, int64_t samples) const override {
    const OperatorTime time = costs_.Time(node, kind, samples);
    OperatorTime half;
    half.forward = time.forward / 2;
    half.backward_input = time.backward_input / 2;
    half.backward_weight = time.backward_weight / 2;
    half.backward = half.backward_input + half.backward_weight;
    return half;
  }
  Bytes SavedBytes(NodeId node, int64_t samples) const override {
    return costs_.SavedBytes(node, samples);
  }
  Bytes WorkspaceBytes(NodeId node, int64_t samples) const override {
    return costs_.WorkspaceBytes(node, samples);
  }
  Precision precision() const override { return costs_.precision(); }
  std::string Description() const override {
    return absl::StrCat(costs_.Description(), ", twice as fast");
  }

 private:
  const CostModel& costs_;
};

}  // namespace

Cluster WithLinks(const Cluster& cluster, double rate, double latency) {
  ClusterData data = cluster.data();
  for (Link& link : data.links) {
    link.bytes_per_second = std::min(link.bytes_per_second * rate, 1e300);
    link.latency = Nanos(std::llround(static_cast<double>(link.latency) * latency));
  }
  return Rebuilt(std::move(data));
}

Cluster WithMemory(const Cluster& cluster, double factor) {
  ClusterData data = cluster.data();
  for (Device& device : data.devices) {
    device.memory = static_cast<Bytes>(std::clamp(static_cast<double>(device.memory) * factor, 1.0,
                                                  static_cast<double>(Cluster::kMostMemory)));
  }
  return Rebuilt(std::move(data));
}

absl::StatusOr<Cluster> Doubled(const Cluster& cluster) {
  const int32_t n = cluster.size();
  if (2 * n > Cluster::kMostDevices) {
    return absl::ResourceExhaustedError(
        absl::StrCat(2 * n, " devices are more than the ", Cluster::kMostDevices, " supported"));
  }
  ClusterData data = cluster.data();
  const auto links = static_cast<int32_t>(data.links.size());
  for (int32_t d = 0; d < n; ++d) {
    data.devices.push_back(data.devices[d]);
    data.devices.back().name += "'";
  }
  for (int32_t l = 0; l < links; ++l) {
    data.links.push_back(data.links[l]);
    data.links.back().name += "'";
  }
  std::vector<std::vector<int32_t>> routes(static_cast<size_t>(4) * n * n);
  const auto copied = [&](std::vector<int32_t> route) {
    for (int32_t& link : route) link += links;
    return route;
  };
  for (int32_t a = 0; a < n; ++a) {
    const int32_t nearest = Nearest(cluster, a);
    for (int32_t b = 0; b < n; ++b) {
      const auto at = [&](int32_t from, int32_t to) -> std::vector<int32_t>& {
        return routes[static_cast<size_t>(from) * 2 * n + to];
      };
      if (a != b) {
        const std::vector<int32_t>& route = cluster.route(DeviceId(a), DeviceId(b)).links;
        at(a, b) = at(a, n + b) = route;
        at(n + a, n + b) = at(n + a, b) = copied(route);
      } else if (nearest >= 0) {
        at(a, n + a) = cluster.route(DeviceId(a), DeviceId(nearest)).links;
        at(n + a, a) = copied(at(a, n + a));
      } else {
        at(a, n + a) = at(n + a, a) = {static_cast<int32_t>(data.links.size())};
        data.links.push_back({"between the two", 0, 1e12});
      }
    }
  }
  data.routes = std::move(routes);
  return Cluster::Create(std::move(data));
}

absl::StatusOr<Strategy> OnDoubled(const Strategy& strategy, int32_t devices) {
  Strategy doubled = strategy;
  for (size_t s = 0; s < doubled.stages.size(); ++s) {
    Stage& stage = doubled.stages[s];
    const size_t replicas = stage.devices.size();
    if (stage.micro_batch < static_cast<int64_t>(2 * replicas)) {
      return absl::InvalidArgumentError(absl::StrCat("a micro-batch of ", stage.micro_batch,
                                                     " in stage ", s, " has no sample for each of ",
                                                     2 * replicas, " replicas"));
    }
    for (size_t r = 0; r < replicas; ++r) {
      stage.devices.push_back(DeviceId(stage.devices[r].value() + devices));
    }
  }
  const size_t orders = doubled.orders.size();
  for (size_t i = 0; i < orders; ++i) {
    DeviceOrder order = doubled.orders[i];
    order.device = DeviceId(order.device.value() + devices);
    doubled.orders.push_back(std::move(order));
  }
  return doubled;
}

std::unique_ptr<CostModel> TwiceAsFast(const CostModel& costs) {
  return std::make_unique<HalvedCosts>(costs);
}

Strategy Unconstrained(const Graph& graph, const Strategy& strategy) {
  Strategy free = strategy;
  for (Stage& stage : free.stages) stage.recompute = false;
  if (!free.orders.empty()) {
    for (DeviceOrder& order : free.orders) {
      std::erase_if(order.steps,
                    [](const ComputeStep& step) { return step.pass == Pass::kRecompute; });
    }
    SetOrders(graph, std::move(free.orders), free);
    return free;
  }
  AssignInFlight(free);
  for (size_t s = 0; s < free.stages.size(); ++s) {
    free.stages[s].schedule.in_flight =
        std::max(free.stages[s].schedule.in_flight, strategy.stages[s].schedule.in_flight);
  }
  return free;
}

absl::StatusOr<Strategy> MoveOperator(const Graph& graph, const OperatorGraph& operators,
                                      const Strategy& strategy, OperatorId op, StageId to) {
  std::vector<StageId> owner = StageOwners(graph, strategy.stages);
  const std::vector<NodeId>& nodes = operators.op(op).nodes;
  for (NodeId node : nodes) owner[node.index()] = to;
  Strategy moved = strategy;
  for (Stage& stage : moved.stages) stage.nodes.clear();
  for (int32_t v : graph.dag().order()) {
    if (owner[v].valid()) moved.stages[owner[v].index()].nodes.push_back(NodeId(v));
  }
  for (size_t s = 0; s < moved.stages.size(); ++s) {
    Stage& stage = moved.stages[s];
    if (stage.nodes.empty())
      return absl::InvalidArgumentError(absl::StrCat("stage ", s, " would be empty"));
    stage.replicated = ReplicatedInto(graph, operators, stage.nodes);
  }
  moved.edges = StageEdges(graph, moved.kind, moved.stages);
  for (const StageEdge& edge : moved.edges) {
    if (edge.to < edge.from) {
      return absl::InvalidArgumentError(
          absl::StrCat("stage ", edge.to.value(), " would wait for stage ", edge.from.value()));
    }
  }
  return moved;
}

absl::StatusOr<Strategy> HalfMicroBatches(const Strategy& strategy) {
  if (!strategy.orders.empty())
    return absl::InvalidArgumentError("the explicit orders are for these micro-batches");
  Strategy half = strategy;
  for (size_t s = 0; s < half.stages.size(); ++s) {
    Stage& stage = half.stages[s];
    if (stage.micro_batch % 2 != 0 ||
        stage.micro_batch / 2 < static_cast<int64_t>(stage.devices.size())) {
      return absl::InvalidArgumentError(absl::StrCat("a micro-batch of ", stage.micro_batch,
                                                     " in stage ", s, " cannot be halved for ",
                                                     stage.devices.size(), " replicas"));
    }
    stage.micro_batch /= 2;
  }
  AssignInFlight(half);
  return half;
}

}  // namespace stagewright
