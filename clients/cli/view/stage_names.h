// What a stage holds and where it runs, by name. Indices without a name are left out, devices
// without one called by their number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clients/cli/view/plan_context.h"
#include "stagewright/v1/strategy.pb.h"

namespace stagewright::cli {

// In the stage's order.
std::vector<std::string> Nodes(const v1::Stage& stage, const PlanContext& context);
std::vector<std::string> Devices(const v1::Stage& stage, const PlanContext& context);
// The modules a stage holds, each once, in order.
std::vector<std::string> Modules(const v1::Stage& stage, const PlanContext& context);

// The devices of a stage for people, in the cluster's order: "node0/gpu[2-3] node[1-3]/gpu[0-3]".
std::string DevicesText(const v1::Stage& stage, const PlanContext& context);

// The position of each node among those that have a stage, in the graph's order; -1 of others.
std::vector<int32_t> NodeRanks(const v1::Strategy& strategy, const PlanContext& context);
// The modules of a stage for people, with the ranks of its strategy: "a .. e" where the stage holds
// all between the two; what is beyond a few such runs is counted: "a .. e, g (+4)".
std::string ModuleText(const v1::Stage& stage, const PlanContext& context,
                       const std::vector<int32_t>& ranks);

}  // namespace stagewright::cli
