// The networks of GraphPipe's evaluation at any size, as planning-only graphs: what searches are
// timed on when they scale.
//
// Times are those of fp32 on a device that reaches 11.8 TFLOP/s, exactly linear in the samples and
// with a backward pass of twice the forward; activations are what an operator hands on. Operators
// appear in the order a framework would trace them, one branch after the other.
#pragma once

#include <cstdint>

#include "common/graph/graph.h"

namespace stagewright::testing {

// Multi-modal transformer: each branch is an embedding and `layers` Transformer layers of three
// operators (attention and two linear layers; sequence 256, hidden 1024, feed-forward 4096); a
// concatenation and a head join them. 3 * branches * layers + branches + 2 operators.
Graph MmtGraph(int32_t branches, int32_t layers);

// DLRM: `dense` branches of four linear layers of width 4096 and `sparse` embeddings of width 64,
// an interaction, four layers on top.
Graph DlrmGraph(int32_t dense, int32_t sparse);

// CANDLE-Uno: branches of `layers` linear layers of width 4096, a concatenation, `layers` layers.
Graph CandleGraph(int32_t branches, int32_t layers);

// A chain of operators of a convolutional network's uneven sizes: the cost of an operator depends
// on its index alone, so that a longer chain begins with the shorter one.
Graph UnevenChain(int32_t length);

}  // namespace stagewright::testing
