// Branches that are equal, and drafts in which they are laid out alike.
//
// A step ends with the slowest branch. Where seven equal branches bind, a change of one of them
// shows nothing until the other six have it as well, and a search that changes one at a time walks
// a plateau. So what a move does to one branch can be done to all.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/models/draft.h"
#include "planner_service/models/operator_costs.h"

namespace stagewright {

// Equal branches between one fork and its join: operators by branch and place in it. Operators at
// one place cost the same and read and are read alike.
using AlikeBranches = std::vector<std::vector<int32_t>>;

// Sets of two or more, disjoint: the outermost ones. Operators are numbered as CanonicalOperators
// does. O(operators log operators) beside Decompose.
std::vector<AlikeBranches> FindAlikeBranches(const OperatorCosts& costs);

enum class MirrorTo {
  kAlike,  // Branches that were laid out as the changed one was, on other devices.
  kAll,
};

// `after`, which came out of `before` by a change in one branch, with that branch's layout in the
// others of its set as well. Devices correspond as those of the two branches did before, others by
// the distance to these. Nothing happens where several branches of a set changed, or where a stage
// has operators of several. Stages need sorting. O(operators + devices of all stages).
// REQUIRES: kind is kGraph.
bool Mirror(const std::vector<AlikeBranches>& sets, const Draft& before, MirrorTo to,
            int32_t devices, Draft& after);

}  // namespace stagewright
