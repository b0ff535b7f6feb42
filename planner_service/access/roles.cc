#include "planner_service/access/roles.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace stagewright {
namespace {

constexpr std::array<std::pair<absl::string_view, Role>, 4> kNames = {{
    {"viewer", Role::kViewer},
    {"submitter", Role::kSubmitter},
    {"operator", Role::kOperator},
    {"worker", Role::kWorker},
}};

struct Rule {
  absl::string_view method;
  Role least;
  bool changes = false;
};

constexpr std::array<Rule, 28> kRules = {{
    {"/grpc.health.v1.Health/Check", Role::kAnybody},
    {"/grpc.health.v1.Health/Watch", Role::kAnybody},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Role::kViewer},
    {"/stagewright.v1.JobService/CancelJob", Role::kSubmitter, true},
    {"/stagewright.v1.JobService/DeleteJob", Role::kSubmitter, true},
    {"/stagewright.v1.JobService/GetJob", Role::kViewer},
    {"/stagewright.v1.JobService/GetJobTrace", Role::kViewer},
    {"/stagewright.v1.JobService/ListJobLogs", Role::kViewer},
    {"/stagewright.v1.JobService/ListJobSteps", Role::kViewer},
    {"/stagewright.v1.JobService/ListJobs", Role::kViewer},
    {"/stagewright.v1.JobService/ListWorkers", Role::kViewer},
    {"/stagewright.v1.JobService/ReplanJob", Role::kSubmitter, true},
    {"/stagewright.v1.JobService/SetWorkerAvailability", Role::kOperator, true},
    {"/stagewright.v1.JobService/SubmitJob", Role::kSubmitter, true},
    {"/stagewright.v1.JobService/WatchJob", Role::kViewer},
    {"/stagewright.v1.PlannerService/Explain", Role::kSubmitter},
    {"/stagewright.v1.PlannerService/GetServer", Role::kViewer},
    {"/stagewright.v1.PlannerService/ListPlanners", Role::kViewer},
    {"/stagewright.v1.PlannerService/Plan", Role::kSubmitter},
    {"/stagewright.v1.PlannerService/PlanStream", Role::kSubmitter},
    {"/stagewright.v1.PlannerService/Simulate", Role::kSubmitter},
    {"/stagewright.v1.PlannerService/Validate", Role::kSubmitter},
    {"/stagewright.v1.ProfileService/ExportProfiles", Role::kViewer},
    {"/stagewright.v1.ProfileService/ImportProfiles", Role::kOperator, true},
    {"/stagewright.v1.ProfileService/ListProfiles", Role::kViewer},
    {"/stagewright.v1.ProfileService/ProfileGraph", Role::kSubmitter, true},
    {"/stagewright.v1.TopologyService/MeasureTopology", Role::kSubmitter, true},
    {"/stagewright.v1.WorkerService/Connect", Role::kWorker, true},
}};

const Rule* RuleOf(absl::string_view method) {
  const auto* rule = std::find_if(kRules.begin(), kRules.end(),
                                  [&](const Rule& known) { return known.method == method; });
  return rule == kRules.end() ? nullptr : rule;
}

}  // namespace

absl::string_view RoleName(Role role) {
  for (const auto& [name, known] : kNames)
    if (known == role) return name;
  return "anybody";
}

std::optional<Role> RoleOf(absl::string_view name) {
  for (const auto& [known, role] : kNames)
    if (known == name) return role;
  return std::nullopt;
}

bool Covers(Role has, Role least) {
  if (least == Role::kAnybody) return true;
  // Workers run what others submit; they do not see jobs that they take no part in.
  if (has == Role::kWorker || least == Role::kWorker) return has == least;
  return has >= least;
}

Role LeastRole(absl::string_view method) {
  const Rule* rule = RuleOf(method);
  return rule == nullptr ? Role::kOperator : rule->least;
}

bool IsDecided(absl::string_view method) { return RuleOf(method) != nullptr; }

bool IsForWorkers(absl::string_view service) {
  return std::any_of(kRules.begin(), kRules.end(), [&](const Rule& rule) {
    absl::string_view method = rule.method;
    return rule.least == Role::kWorker && absl::ConsumePrefix(&method, "/") &&
           absl::ConsumePrefix(&method, service) && absl::StartsWith(method, "/");
  });
}

bool Changes(absl::string_view method) {
  const Rule* rule = RuleOf(method);
  return rule == nullptr || rule->changes;
}

}  // namespace stagewright
