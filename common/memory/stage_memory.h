// What the passes of a stage hold and when: the order in which a worker's StageModule
// (worker_daemon/stage/stage_module.h) makes tensors and lets go of them, followed on shapes.
//
// A forward pass runs the nodes in topological order. A value lives until its last reader has run
// and, where a node saves it, until that node's backward pass; inputs of the graph, and what leaves
// the stage, at least until the pass ends. What is sent, and the loss, stay for a backward pass
// that comes whole, which starts from them.
//
// A backward pass runs the nodes in the opposite order. A node makes the gradients of its operands
// and parameters; then what it saved goes, the gradients of its results, and those of its
// parameters, which are added to what is there or, in the first backward pass after an update of
// the parameters and where those of the pass before have gone, stay. A second gradient of a value
// is added to the memory of the first one, or the first to that of the second, unless others use
// both. Roots, what was received, and gradients received and to be returned stay until the end.
//
// A backward pass in halves (segments.h) runs segment after segment. A segment holds the gradients
// that it starts from until it ends. One whose nodes read parameters holds them, and what its nodes
// saved, until the weight half: that one frees what was saved node by node, the gradients at its
// end.
#pragma once

#include <cstdint>

#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/memory/stage_tape.h"

namespace stagewright {

// Bytes of the passes over one share, messages to and from other stages apart.
struct StageMemory {
  // What each pass holds at most, above what is there when it begins. What leaves the stage counts
  // in both forward passes, the gradients of what was received in input_half and in whole backward
  // passes.
  Bytes forward = 0;       // A forward pass that a backward pass follows.
  Bytes forward_only = 0;  // A forward pass of which nothing is kept.
  Bytes input_half = 0;    // The input half of a split backward pass.
  struct Gradients {
    Bytes backward = 0;
    Bytes weight_half = 0;
  };
  // Passes that make gradients of parameters: `first` when no such gradients are there yet, and
  // those that it makes stay; `later` when they are there, but for those of passing parameters.
  Gradients first;
  Gradients later;
  // What is left by a forward pass, and between the halves of a backward pass.
  Bytes saved = 0;
  Bytes between = 0;
};

// For shares of `samples` samples; `split`: backward passes come in halves. Planning-only nodes
// take what the cost model says from the beginning of a pass to the end, and their operands'
// gradients are not counted. O(steps + reads).
StageMemory FollowStage(const Graph& graph, const CostModel& costs, const StageTape& tape,
                        int64_t samples, bool has_backward, bool split);

}  // namespace stagewright
