// Whether what a plan was made from still holds when a job brings the plan.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/cost/measured/operator_profile.h"
#include "planner_service/registry/link_table.h"
#include "planner_service/registry/registered_device.h"
#include "stagewright/v1/job_service.pb.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright {

class PlanCheck {
 public:
  // Compares what no time changes: the graph and what is asked of it. O(graph).
  PlanCheck(const v1::JobSpec& spec, const v1::PlanBasis& basis);

  // The devices of the plan's cluster.
  const std::vector<std::string>& devices() const { return devices_; }

  // Compares the rest, too. ABORTED as CheckBasis (plan_basis.h) unless a plan for the job would be
  // made from the same now: of devices that are `there` those of the plan alone count. Errors of
  // JobCluster. O(devices ^ 2 + measured operators).
  absl::Status Holds(const std::vector<RegisteredDevice>& there, const LinkTable& links,
                     const OperatorProfile& known) const;

 private:
  v1::PlanBasis then_;  // Without operators.
  std::vector<std::string> devices_;
  std::vector<std::string> other_question_;  // What of the question is not as it was.
};

}  // namespace stagewright
