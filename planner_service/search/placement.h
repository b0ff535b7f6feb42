// Which devices run which stage.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/topology/cluster.h"

namespace stagewright {

// Devices for stages with the given numbers of replicas, in stage order. Walks the nodes in order,
// so that neighbouring stages share a node; replicas of a stage are kept inside one node when a
// node has room for them (the current one, else the first), and spill over in device order
// otherwise. Device sets are disjoint.
// Stages with `spread` come first instead, with their replicas on nodes as far apart as they go: so
// many network ports share their messages. `spread` may be empty.
// REQUIRES: the sum of `replicas` is at most the number of devices. O(devices * stages).
std::vector<std::vector<DeviceId>> PlaceStages(const Cluster& cluster,
                                               const std::vector<int32_t>& replicas,
                                               const std::vector<bool>& spread = {});

}  // namespace stagewright
