// Graph <-> stagewright.v1.Graph.
#pragma once

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "stagewright/v1/graph.pb.h"

namespace stagewright {

v1::Graph ToProto(const Graph& graph);
// INVALID_ARGUMENT names the field, as Graph::Create does.
absl::StatusOr<Graph> FromProto(const v1::Graph& proto);

v1::ValueRef ToProto(ValueRef value);
ValueRef FromProto(const v1::ValueRef& proto);

}  // namespace stagewright
