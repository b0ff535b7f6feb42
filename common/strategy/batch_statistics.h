// Which samples must share a forward pass: what the user says about statistics over a batch.
#pragma once

#include <cstdint>
#include <optional>

#include "common/graph/graph.h"

namespace stagewright {

// Over which samples batch normalisation takes its statistics in training.
enum class BatchStatistics : uint8_t {
  kWhole,  // The mini-batch, as one process would that runs it at once.
  kMicro,  // Whatever a replica has of a micro-batch.
  // The mini-batch, exchanged between replicas and micro-batches. Stages exchange nothing inside a
  // layer, so that only stages that run the whole mini-batch on one device can.
  kSynchronised,
};

const char* BatchStatisticsName(BatchStatistics statistics);  // "whole", "micro", "synchronised"

// The node must see the whole mini-batch in one pass: its result depends on which samples share a
// forward pass, and nobody allowed it to differ. Other nodes than batch normalisation always must.
bool NeedsWholeBatch(const Node& node, BatchStatistics statistics);

// Batch normalisation: what kMicro is for.
bool IsBatchNormalisation(const Node& node);

// The first node of the graph that must; nullopt if none does. O(nodes).
std::optional<NodeId> FirstOnWholeBatch(const Graph& graph, BatchStatistics statistics);

}  // namespace stagewright
