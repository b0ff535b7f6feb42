// The links of a job's cluster: measured ones, and assumptions for those that were not.
#pragma once

#include <string>
#include <vector>

#include "common/topology/cluster.h"
#include "planner_service/registry/link_table.h"
#include "planner_service/registry/worker_registry.h"

namespace stagewright {

// Adds links and routes of `devices`, which are `data.devices` in that order.
//
// Devices of one machine send through a port of their own; where all of them at once have less than
// their ports, they share the machine's memory. Messages between machines take the wire between
// them and share an uplink of each. Rates of ports and wires are medians of what was measured
// between the machines, so that noise does not make alike devices unlike; a pair off by more than a
// factor of two has a link of its own. Messages within a machine wait for the threads of its other
// devices: their latency is that of a small message while all of them compute, if that is longer.
//
// What was not measured counts as what was measured between these machines, or else as 5 GB/s and
// 30 us inside, 1.25 GB/s and 130 us between machines. O(devices ^ 2).
void AddLinks(const std::vector<RegisteredDevice>& devices, const LinkTable& table,
              ClusterData& data);

// "links measured 12:03", "links assumed", "links measured 12:03, but assumed: a - b (no answer)".
std::string LinkSummary(const std::vector<RegisteredDevice>& devices, const LinkTable& table);

// Devices that share a machine with `device`, itself included.
Crowd CrowdOf(const RegisteredDevice& device, const std::vector<RegisteredDevice>& devices);

}  // namespace stagewright
