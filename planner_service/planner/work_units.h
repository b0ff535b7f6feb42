// What the steps of searches count as work (SearchContext::Spend): about what each takes in a
// release build on one core, so that the parts of a search share one budget whatever they do.
//
// One table for all, as only their ratios matter: `auto` keeps its budget where a step that takes
// twice as long counts twice as much. docs/planners/auto.md says how they were measured.
#pragma once

#include "common/base/units.h"

namespace stagewright::work {

// A poll between which no other work is counted.
inline constexpr Nanos kPoll = 800;

// Judging: a replica's micro-batch (its passes, transfers and memory), a node that a device of a
// stage holds, a node of a stage however many devices it has, and a pair of devices that sum
// gradients.
inline constexpr Nanos kShare = 4'000;
inline constexpr Nanos kHeldNode = 20;
inline constexpr Nanos kNode = 600;
inline constexpr Nanos kSumPair = 40;

// Scheduling drafts: a pass, and of the graph of one a unit or operator, and a link; laying out an
// operator; an operator of a draft that a move changes.
inline constexpr Nanos kListPass = 34;
inline constexpr Nanos kTaskUnit = 60;
inline constexpr Nanos kTaskLink = 120;
inline constexpr Nanos kLayout = 200;
inline constexpr Nanos kMovedOperator = 25;

// `graphpipe`: a state of the partition search, an option at an operator in its first pass, and a
// pass of a timeline with its messages.
inline constexpr Nanos kPartitionState = 40;
inline constexpr Nanos kFirstPassOption = 5;
inline constexpr Nanos kTimelinePass = 110;

// `pfeife`: a pass that a longest path visits, and one of a graph that is made.
inline constexpr Nanos kLoopedPass = 10;
inline constexpr Nanos kMadePass = 65;

// `pipedream`: a layer of a state, a pair of states, and a number of replicas between the two.
inline constexpr Nanos kStateLayer = 4;
inline constexpr Nanos kStatePair = 6;
inline constexpr Nanos kStageChoice = 20;

// `piper`: a stage that is looked at, and one whose costs are worked out.
inline constexpr Nanos kStageLook = 30;
inline constexpr Nanos kStagePrice = 250;

// A pair of devices, for a planner that looks at all of them before it starts.
inline constexpr Nanos kDevicePair = 200;

}  // namespace stagewright::work
