#include "planner_service/planners/exact/stage_times.h"

#include <algorithm>
#include <limits>

#include "common/cost/collectives.h"
#include "common/cost/update.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

StageTimes::Row MakeRow(const OperatorCosts& costs,
                        const std::vector<StageTimes::Replica>& replicas) {
  const Cluster& cluster = *costs.problem().cluster;
  const auto n = static_cast<size_t>(costs.size());
  StageTimes::Row row;
  row.least_forward.assign(n, kInfinity);
  row.least_back.assign(n, kInfinity);
  row.device_time.assign(n, 0);
  row.update.assign(n, kInfinity);
  row.step_overhead = kInfinity;
  Bytes smallest = std::numeric_limits<Bytes>::max();
  double slowest = -1;
  for (const StageTimes::Replica& replica : replicas) {
    const ShareTable& share = costs.Share(replica.samples, CostView::kLeast);
    const DeviceKind& kind = cluster.kinds()[replica.kind];
    row.step_overhead = std::min(row.step_overhead, static_cast<double>(kind.step_overhead));
    std::vector<double> forward, backward;
    double sum = 0;
    for (size_t op = 0; op < n; ++op) {
      const OperatorTime& time = (*replica.times)[op];
      forward.push_back(static_cast<double>(time.forward));
      backward.push_back(static_cast<double>(time.backward));
      sum += forward[op] + backward[op];
      row.least_forward[op] = std::min(row.least_forward[op], forward[op]);
      row.least_back[op] = std::min(row.least_back[op], backward[op]);
      row.device_time[op] += forward[op] + backward[op];
      const Bytes trained = costs.held(static_cast<int32_t>(op)).least.trained;
      row.update[op] = std::min(row.update[op], LeastOptimizerStepTime(kind, trained));
    }
    const Bytes memory = cluster.device(replica.device).memory;
    if (memory < smallest) {
      smallest = memory;
      row.saved = share.saved;
    }
    if (sum > slowest) {
      slowest = sum;
      row.forward = std::move(forward);
      row.backward = std::move(backward);
    }
  }
  return row;
}

StageTimes::Wire MakeWire(const Cluster& cluster, const std::vector<StageTimes::Replica>& from,
                          const std::vector<StageTimes::Replica>& to) {
  StageTimes::Wire wire = {kInfinity, kInfinity, std::numeric_limits<int64_t>::max()};
  for (const StageTimes::Replica& a : from) {
    for (const StageTimes::Replica& b : to) {
      const int64_t samples =
          std::min(a.first + a.samples, b.first + b.samples) - std::max(a.first, b.first);
      if (samples <= 0) continue;
      for (const Route* route :
           {&cluster.route(a.device, b.device), &cluster.route(b.device, a.device)}) {
        wire.latency = std::min(wire.latency, static_cast<double>(route->latency));
        wire.nanos_per_byte = std::min(wire.nanos_per_byte, 1e9 / route->bytes_per_second);
      }
      wire.samples = std::min(wire.samples, samples);
    }
  }
  return wire;
}

}  // namespace

StageTimes MakeStageTimes(const OperatorCosts& costs, const DeviceLayout& layout,
                          int64_t micro_batch) {
  const Cluster& cluster = *costs.problem().cluster;
  StageTimes times;
  times.micro_batch = micro_batch;
  times.micro_batches = costs.problem().mini_batch / micro_batch;
  for (const std::vector<DeviceId>& devices : layout) {
    std::vector<StageTimes::Replica>& replicas = times.replicas.emplace_back();
    Bytes memory = std::numeric_limits<Bytes>::max();
    int64_t samples = 0;
    for (size_t r = 0; r < devices.size(); ++r) {
      const SampleRange share = ReplicaShare({0, micro_batch}, static_cast<int32_t>(r),
                                             static_cast<int32_t>(devices.size()));
      const int32_t kind = cluster.device(devices[r]).kind;
      const ShareTable& table = costs.Share(share.size(), CostView::kLeast);
      replicas.push_back({devices[r], kind, share.begin, share.size(), &table.time[kind]});
      if (cluster.device(devices[r]).memory < memory) {
        memory = cluster.device(devices[r]).memory;
        samples = share.size();
      }
    }
    times.memory.push_back(memory);
    times.least_samples.push_back(samples);
    times.rows.push_back(MakeRow(costs, replicas));
  }
  times.wires.resize(layout.size());
  for (size_t a = 0; a < layout.size(); ++a) {
    for (size_t b = 0; b < layout.size(); ++b) {
      times.wires[a].push_back(a == b ? StageTimes::Wire{}
                                      : MakeWire(cluster, times.replicas[a], times.replicas[b]));
    }
  }
  return times;
}

double LeastTail(double backward, double sum, double step) {
  return std::max(step, sum - backward);
}

double LeastAllReduce(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes bytes) {
  if (bytes == 0 || devices.size() < 2) return 0;
  return LeastAllReduceTime(bytes, std::ssize(devices), FastestOf(cluster, devices));
}

}  // namespace stagewright
