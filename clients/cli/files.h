// Files the CLI writes and reads beside graphs: saved plans and Chrome traces.
#pragma once

#include <string>
#include <vector>

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
absl::StatusOr<SavedPlan> LoadPlan(const std::string& path);

// The timelines of the plan and of the sequential plan beside it. FAILED_PRECONDITION if the answer
// carries none.
absl::Status SaveTimelines(const v1::PlanResponse& response,
                           const std::vector<std::string>& device_names, const std::string& path);

// Written under a temporary name and renamed.
absl::Status WriteFile(const std::string& path, const std::string& contents);

}  // namespace stagewright::cli
