#include "planner_service/lifecycle/planning_ahead.h"

#include <algorithm>
#include <utility>

#include "planner_service/jobs/job_cluster.h"
#include "planner_service/lifecycle/job_life.h"
#include "planner_service/lifecycle/restart_rules.h"
#include "planner_service/planner/planner.h"
#include "planner_service/profiles/profile_choice.h"

namespace stagewright {
namespace {

constexpr absl::Duration kRound = absl::Seconds(30);
// Nobody waits for a search, which gets little of the machine: it may take as many times longer.
constexpr int kPatience = 10;

bool IsLookedAt(const JobRecord& record, absl::Time now) {
  const Job& job = record.job;
  return job.state == JobState::kRunning && !record.changeover.has_value() && MayRestart(job) &&
         IsSought(*job.request) && now >= record.ahead.look_again;
}

}  // namespace

bool IsSought(const JobRequest& request) {
  return !request.strategy.has_value() && request.planner != kManualPlanner;
}

std::vector<RegisteredDevice> DevicesAfterLoss(const JobRecord& record, const std::string& worker,
                                               std::vector<RegisteredDevice> connected) {
  const Job& job = record.job;
  std::erase_if(connected, [&](const RegisteredDevice& device) {
    const bool has = device.job == job.name() || (device.job.empty() && device.available);
    return !has || device.worker == worker;
  });
  const DeviceShare share = ShareAfterLoss(record);
  if (connected.size() < share.least) return {};
  connected.resize(std::min(connected.size(), share.most));
  return connected;
}

void BeginLooking(JobRecord& record, absl::Time now) {
  record.ahead.EndRound();
  record.ahead.look_again = now;
}

void EndLooking(JobRecord& record) {
  if (record.ahead.search == nullptr) return;
  record.ahead.search->Cancel();
  record.ahead.search.reset();
}

void JobLife::PlanAhead() {
  if (suspended_ || !planners_.ahead || !records_.trouble().ok()) return;
  JobRecord* next = nullptr;
  for (auto& [number, record] : records_.live()) {
    if (record.ahead.search != nullptr) return;
    if (!IsTerminal(record.job.state) && IsLookedAt(record, Now()) &&
        (next == nullptr || record.ahead.look_again < next->ahead.look_again))
      next = &record;
  }
  if (next != nullptr) PlanAheadOf(*next);
}

void JobLife::PlanAheadOf(JobRecord& record) {
  PlansAhead& ahead = record.ahead;
  const auto worker = record.run->workers().upper_bound(ahead.looked_at);
  if (worker == record.run->workers().end()) {
    ahead.EndRound();
    ahead.look_again = Now() + kRound;
    return;
  }
  ahead.looked_at = worker->first;
  const std::vector<RegisteredDevice> devices =
      DevicesAfterLoss(record, worker->first, registry_->Devices(/*free_only=*/false));
  if (devices.empty()) return;
  auto cluster = JobCluster(devices, registry_->Links());
  const auto known = records_.profiles().Known();
  if (!cluster.ok() || !known.ok()) return;
  auto profile = std::make_shared<const OperatorProfile>(ProfileOf(devices, *cluster, **known));
  if (!ahead.Lacks(PlanSource(*cluster, *profile))) return;
  auto context = std::make_shared<SearchContext>(
      SearchContext::Clock::now() +
      absl::ToChronoNanoseconds(kPatience * options_.planning_timeout));
  if (planners_
          .ahead(record.job, std::make_shared<const Cluster>(*std::move(cluster)),
                 std::move(profile), context)
          .ok())
    ahead.search = std::move(context);
}

void JobLife::OnPlannedAhead(int64_t number, const std::shared_ptr<SearchContext>& context,
                             PlanSource source, std::shared_ptr<const JobPlan> plan) {
  JobRecord* record = records_.Find(number);
  if (record == nullptr || record->ahead.search != context) return;
  record->ahead.search.reset();
  // What the clock cut short is no better than no plan: the job would keep to it. It would be cut
  // short again, too.
  if (context->Stopped()) plan.reset();
  record->ahead.Keep(std::move(source), std::move(plan));
}

}  // namespace stagewright
