// What can pass into and out of parts of a cluster at once.
#pragma once

#include <cstdint>
#include <vector>

#include "common/topology/cluster.h"

namespace stagewright {

// The devices parted into groups, largest rates and counts first, each on its own.
struct CutRates {
  std::vector<double> in;   // Bytes per ns that transfers from other groups bring at most.
  std::vector<double> out;  // The same for those to other groups.
  std::vector<int32_t> devices;
};

// Groups of one device each.
CutRates CutByDevice(const Cluster& cluster);
// Groups of the devices of a node.
CutRates CutByNode(const Cluster& cluster);

}  // namespace stagewright
