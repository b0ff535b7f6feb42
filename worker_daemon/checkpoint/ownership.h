// Who writes which parameter of a checkpoint: each parameter is written once, by the first replica
// of the first stage that uses it.
#pragma once

#include <vector>

#include "common/base/ids.h"
#include "common/graph/graph.h"
#include "common/program/program.h"

namespace stagewright {

// What the stage's nodes read and what it updates, ascending. O(nodes).
std::vector<ParameterId> StateOfStage(const Graph& graph, const ProgramStage& stage);

// The parameters and buffers that the device writes, ascending. Over all devices of the program
// these are exactly those that any stage uses, without constants of the graph. What no stage uses
// is in unread_tensors.h. O(nodes).
std::vector<ParameterId> ParametersToWrite(const Graph& graph, const Program& program,
                                           DeviceId device);

}  // namespace stagewright
