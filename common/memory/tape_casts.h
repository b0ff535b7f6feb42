// Mixed precision on a stage's tape: the types in which its nodes compute, and the casts between
// them.
#pragma once

#include "common/graph/graph.h"
#include "common/memory/stage_tape.h"
#include "common/training/precision.h"

namespace stagewright {

// Gives the values of a tape those types that they have under autocast, as a worker's stage
// computes them: an operand of another type than its node takes is cast by a step before it, in a
// copy that the node saves in its place; the loss and the prediction are cast back for the report,
// when all nodes have run. Parameters are cast once for all passes (CastBytesOf in stage_costs.h).
// O(nodes + reads). REQUIRES: IsMixed(precision).
void AddCasts(const Graph& graph, Precision precision, StageTape& tape);

}  // namespace stagewright
