// Ways to look at a cluster whose devices, memories or links differ, for planners that take all
// devices for equal.
//
// A view is a cluster of some of the devices in some order. A planner that searches each as if it
// were the whole cluster, and has what it proposes judged on the real devices, needs no other care
// for slow devices, small memories and slow links, and is never worse than if it had been told that
// all are equal: that is one of the views.
#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/topology/cluster.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

struct PlacementView {
  std::string name;  // Tells views apart.
  Cluster cluster;
  std::vector<DeviceId> devices;  // Devices of the problem's cluster, by device of the view.
};

// Views worth a search besides the cluster itself. Single devices come first: they need no search.
//   - the fastest device of each memory size;
//   - all devices as if they and their links were as the fastest;
//   - devices in groups behind fast links, each a node, fast ones first: as they are and as if all
//     were equal;
//   - those of at least some memory, of at least some speed; the fastest group; the first 2, 4, ...
// A large cluster has only some of these views, never all: routes would take too long to copy.
// None if all devices and all links are equal. A regular cluster of nodes has the second alone, if
// it is small: planners know nodes. O(devices^2 * views + nodes * kinds).
std::vector<PlacementView> PlacementViews(const Problem& problem);

// The strategy for a view on the problem's devices.
Strategy OnDevicesOf(const PlacementView& view, Strategy strategy);

}  // namespace stagewright
