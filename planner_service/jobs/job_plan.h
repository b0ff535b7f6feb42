// Plans one job: a pure function of its spec and cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/topology/cluster.h"
#include "planner_service/planner/planner.h"
#include "stagewright/v1/job_service.pb.h"
#include "stagewright/v1/planner_service.pb.h"
#include "stagewright/v1/program.pb.h"

namespace stagewright {

struct JobPlan {
  v1::Plan best;  // With its timeline.
  std::optional<v1::Plan> sequential;
  std::vector<std::string> warnings;  // What the user should know, a sentence each.
  v1::Program evaluation_program;  // Forward passes of the same stages; empty if nothing is to be
                                   // evaluated.
  std::vector<v1::Program> length_evaluation_programs;  // Ditto, for each of Graph.lengths.
};

// FAILED_PRECONDITION carries the planner's reason where no plan exists.
absl::StatusOr<JobPlan> PlanJob(const v1::JobSpec& spec, const Cluster& cluster,
                                const std::string& default_planner, SearchContext& context);

}  // namespace stagewright
