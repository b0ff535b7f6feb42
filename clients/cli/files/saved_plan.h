// Plans as `plan --save` writes them and `plan show` reads them.
#pragma once

#include <string>

#include "common/base/status.h"
#include "stagewright/v1/graph.pb.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

struct SavedPlan {
  v1::PlanResponse response;
  v1::Graph graph;  // Names only: what views print.
};

// JSON in protobuf's mapping: {"response": ..., "graph": ...}.
absl::Status SavePlan(const v1::PlanResponse& response, const v1::Graph& graph,
                      const std::string& path);

// NOT_FOUND without such a file; INVALID_ARGUMENT says what of it is no saved plan.
absl::StatusOr<SavedPlan> LoadPlan(const std::string& path);

}  // namespace stagewright::cli
