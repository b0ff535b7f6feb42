// Costs to plan a running job by: those that it was planned by, corrected by what its steps took.
//
// What a pass took is shared out among its operators and, on kinds of devices that have them, its
// fixed costs: as operators were timed, or else as predicted. So every operator has a ratio of
// measured over predicted time on each device that runs it. Whose it is, the operator's or the
// device's, shows where an operator runs on several devices, or was measured by itself before: a
// device whose operators take longer than the same ones elsewhere, or than they took then, is
// slower by that factor, and its other operators are, too. All else is the operators', on all
// devices of the kind.
//
// Links take as long, against their prediction, as the median of the messages that went over them.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/cost/cost_model.h"
#include "common/cost/measured/operator_profile.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "common/topology/cluster.h"
#include "common/training/optimizer_spec.h"
#include "planner_service/drift/action_times.h"

namespace stagewright {

// What `costs` says of the operators of a program: for each stage, kind of device and number of
// samples of its passes, on the first such device. Of a split backward pass all of it. O(nodes).
std::vector<TimedOperator> ExpectedOperators(const Program& program, const Cluster& cluster,
                                             const CostModel& costs);

// What ran, and what it was predicted by. All outlive the call.
struct RunningPlan {
  const Graph& graph;
  const Program& program;
  const Cluster& cluster;          // Its first devices are the program's.
  const CostModel& costs;          // For the graph.
  const OperatorProfile& profile;  // What `costs` knows of measurements.
  Optimizer optimizer = Optimizer::kAdam;
};

struct MeasuredCosts {
  // Devices that are more than a tenth slower or faster than their kind have a kind of their own,
  // "cpu@w1/cpu0".
  Cluster cluster;
  OperatorProfile profile;  // For all kinds of the cluster.
};

// `source` and `day` say where measurements come from: "steps of jobs/7", "2026-11-22". Graphs of
// profiles, whose operators have no signature, keep their costs. O(nodes * devices).
MeasuredCosts CostsAsMeasured(const RunningPlan& plan, const std::vector<ActionTimes>& actions,
                              const std::vector<TimedOperator>& operators,
                              const std::string& source, const std::string& day);

}  // namespace stagewright
