// The graph of a plan's stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stagewright/v1/strategy.pb.h"

namespace stagewright::cli {

// The stages that each stage sends to.
std::vector<std::vector<int32_t>> Successors(const v1::Strategy& strategy);

// Stages beside each other, whatever the planner calls it.
bool HasBranches(const v1::Strategy& strategy);

// "1 ─┬─ 2 ─┬─ 4" needs a layout; levels say the same: one line per level, its stages side by side.
std::string DagText(const v1::Strategy& strategy);

}  // namespace stagewright::cli
