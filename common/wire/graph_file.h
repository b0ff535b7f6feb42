// Graph files (`*.swg`): "SWGRAPH1", payload length (uint64, little-endian), CRC-32 of the payload
// (uint32, little-endian), payload (a serialized stagewright.v1.Graph).
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "stagewright/v1/graph.pb.h"

namespace stagewright {

// NOT_FOUND: no such file. INVALID_ARGUMENT: not a graph file, or the graph breaks an invariant.
// DATA_LOSS: truncated or corrupt. Messages name the file.
absl::StatusOr<Graph> ReadGraphFile(const std::string& path);
// ReadGraphFile without building the graph: what a client sends.
absl::StatusOr<v1::Graph> ReadGraphProto(const std::string& path);
// ReadGraphProto from the bytes of a file; `path` is for messages.
absl::StatusOr<v1::Graph> ParseGraphFile(const std::string& bytes, const std::string& path);

// What such a file holds.
std::string GraphFileBytes(const Graph& graph);

}  // namespace stagewright
