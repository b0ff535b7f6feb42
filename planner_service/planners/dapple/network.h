// The two networks that DAPPLE's search knows.
#pragma once

#include <vector>

#include "common/topology/cluster.h"
#include "planner_service/planners/dapple/objective.h"

namespace stagewright::dapple {

// A cluster's links: a message is split among senders and receivers, its parts share the links they
// meet on, and the busiest link decides; gradients are summed as the simulator has it
// (AllReduceTime), or in one ring (RingAllReduceTime), by the times of none and of very many bytes.
class ClusterNetwork : public Network {
 public:
  enum class Sums { kAsSimulated, kRing };
  explicit ClusterNetwork(const Cluster& cluster, Sums sums = Sums::kAsSimulated)
      : cluster_(cluster), sums_(sums) {}  // The cluster outlives it.
  Affine Transfer(const std::vector<DeviceId>& from,
                  const std::vector<DeviceId>& to) const override;
  Affine AllReduce(const std::vector<DeviceId>& devices) const override;

 private:
  const Cluster& cluster_;
  const Sums sums_;
};

// The published program's: three bandwidths, bytes per second, and nodes that count by the first
// and the last device of a set.
class CodedNetwork : public Network {
 public:
  explicit CodedNetwork(const std::vector<int32_t>& node_sizes);
  Affine Transfer(const std::vector<DeviceId>& from,
                  const std::vector<DeviceId>& to) const override;
  Affine AllReduce(const std::vector<DeviceId>& devices) const override;

  double nvlink = 25e9;  // Within a node.
  double p2p = 1e9;      // Between nodes, to a stage on one node.
  double nccl = 3e9;     // Between nodes, collectively.

 private:
  std::vector<int32_t> node_of_;  // By device.
};

}  // namespace stagewright::dapple
