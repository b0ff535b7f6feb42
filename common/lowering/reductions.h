// Which gradients are summed across devices.
#pragma once

#include <vector>

#include "common/graph/graph.h"
#include "common/program/program.h"

namespace stagewright {

// Trainable parameters grouped by the exact set of stages that hold them, where these run on two or
// more devices: a stage's gradients are summed while other stages of its devices still compute. The
// order is that in which groups become complete: those whose earliest stage is last come first,
// since backward passes end there first; so every device meets its all-reduces in one common order.
// Planning-only nodes of a replicated stage add their parameter bytes without naming parameters.
// O(nodes), and for each parameter O(d log d) for the d devices of the stages that hold it.
std::vector<Reduction> MakeReductions(const Graph& graph, const std::vector<ProgramStage>& stages);

// The sum of the gradients' squared norm: one double over all devices of the stages.
Reduction MakeNormReduction(const std::vector<ProgramStage>& stages);

}  // namespace stagewright
