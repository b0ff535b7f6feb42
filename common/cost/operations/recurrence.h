// Layers with a state that goes from step to step of a sequence: LSTM, GRU and simple ones, as
// layers or as single cells.
#pragma once

#include <cstdint>

#include "common/graph/graph.h"

namespace stagewright {

// Each cell takes its input of all steps in one product, and its state in one product per step,
// which waits for the one before.
struct Recurrence {
  double input_flops = 0;     // For all cells and steps.
  double steps = 0;           // All cells' (layers' and directions'), one after another.
  double step_flops = 0;      // For one step, in the mean.
  double saved_elements = 0;  // What is kept for the backward pass beside operands and results.

  double flops() const { return input_flops + steps * step_flops; }
};

// What a node does that KindOfTarget calls recurrent, where its arguments are as PyTorch has them;
// else nothing. What LibTorch saves is 16 (LSTM), 6 (GRU) or no numbers per number of a state,
// and a copy of the result, as its processors' layers were seen to (cuDNN's save less).
Recurrence RecurrenceOf(const Graph& graph, const Node& node, int64_t samples);

}  // namespace stagewright
