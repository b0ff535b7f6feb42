// What nodes send each other at least, if they run on different devices.
#pragma once

#include "common/base/ids.h"
#include "common/graph/graph.h"
#include "common/training/autocast.h"

namespace stagewright {

// Bytes a sample that a node reads from another, in the types in which they are sent; values whose
// samples do not lie side by side are left out.
double BytesRead(const MessageTypes& types, NodeId from, NodeId to);
// Those of which a gradient returns, where one does.
double GradientBytesRead(const MessageTypes& types, NodeId from, NodeId to);

// Whether a tensor with a gradient flows between the two, both with a backward pass: then the
// backward pass of `from` waits for that of `to`, as in common/lowering/channels.cc.
bool GradientReturns(const Graph& graph, NodeId from, NodeId to);

}  // namespace stagewright
