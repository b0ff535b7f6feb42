// Graph <-> stagewright.v1.Graph.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "stagewright/v1/graph.pb.h"

namespace stagewright {

v1::Graph ToProto(const Graph& graph);
// INVALID_ARGUMENT names the field, as Graph::Create does.
absl::StatusOr<Graph> FromProto(const v1::Graph& proto);

// The same model for samples of other shapes than those of `graph`, which is FromProto(proto).
// INVALID_ARGUMENT names the entry that is not the same but for sizes, or not for other samples.
absl::StatusOr<std::vector<Graph>> LengthsFromProto(const v1::Graph& proto, const Graph& graph);

// The graph with no more than the names and modules of its nodes, for who only prints them.
v1::Graph NamesOf(const v1::Graph& graph);

v1::ValueRef ToProto(ValueRef value);
ValueRef FromProto(const v1::ValueRef& proto);

}  // namespace stagewright
