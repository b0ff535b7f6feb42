#include "planner_service/records/plan_check.h"

#include <set>
#include <utility>

#include "planner_service/jobs/job_cluster.h"
#include "planner_service/wire/plan_basis.h"

namespace stagewright {
namespace {

v1::PlanBasis WithoutOperators(v1::PlanBasis basis) {
  basis.clear_operators();
  return basis;
}

std::vector<std::string> OtherQuestion(const v1::JobSpec& spec, const v1::PlanBasis& then) {
  v1::PlanningProblem problem;
  *problem.mutable_graph() = spec.graph();
  problem.set_mini_batch(spec.mini_batch());
  problem.set_optimizer(spec.optimizer().kind());
  problem.set_precision(spec.precision());
  return ChangesOfQuestion(then, BasisOf(problem, {}));
}

}  // namespace

PlanCheck::PlanCheck(const v1::JobSpec& spec, const v1::PlanBasis& basis)
    : then_(WithoutOperators(basis)), other_question_(OtherQuestion(spec, basis)) {
  for (const v1::BasisDevice& device : then_.devices()) devices_.push_back(device.name());
}

absl::Status PlanCheck::Holds(const std::vector<RegisteredDevice>& there, const LinkTable& links,
                              const OperatorProfile& known) const {
  // Those alone that the plan's cluster had: what links do depends on who shares them.
  const std::set<std::string> of_plan(devices_.begin(), devices_.end());
  std::vector<RegisteredDevice> present;
  for (const RegisteredDevice& device : there)
    if (of_plan.contains(device.QualifiedName())) present.push_back(device);
  v1::PlanBasis now;
  if (!present.empty()) {
    ASSIGN_OR_RETURN(const Cluster cluster, JobCluster(present, links));
    for (v1::BasisDevice& device : DevicesOf(cluster)) *now.add_devices() = std::move(device);
    SetLinks(cluster, now);
  }
  SetProfiles(known, now);
  std::vector<std::string> changes = ChangesOfCluster(then_, now);
  changes.insert(changes.end(), other_question_.begin(), other_question_.end());
  return Outdated(std::move(changes));
}

}  // namespace stagewright
