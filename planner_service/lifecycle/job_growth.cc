#include "planner_service/lifecycle/job_growth.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/topology/cluster.h"
#include "planner_service/growth/growth_gain.h"
#include "planner_service/growth/growth_room.h"
#include "planner_service/lifecycle/changeover.h"
#include "planner_service/lifecycle/job_life.h"
#include "planner_service/lifecycle/measurements.h"
#include "planner_service/lifecycle/planning_ahead.h"
#include "planner_service/queue/servable_jobs.h"
#include "planner_service/wire/plan_basis.h"

namespace stagewright {
namespace {

// A search that nobody waits for must not keep others from planning.
constexpr absl::Duration kSearchLimit = absl::Seconds(20);
constexpr absl::Duration kAfterVain = absl::Seconds(30);

void Say(JobRecords& records, JobRecord& record, std::string growth) {
  if (record.job.growth == growth) return;
  record.job.growth = std::move(growth);
  records.AnnounceChange(record.job);
}

int64_t SizeOf(const std::vector<std::string>& devices) {
  return static_cast<int64_t>(devices.size());
}

// Those of the problem that the job does not have.
std::vector<std::string> Offered(const Job& job, const std::vector<std::string>& devices) {
  return {devices.begin() + SizeOf(job.devices), devices.end()};
}

// What the search for it depends on, apart from the job.
v1::PlanBasis BasisOf(const ReplanProblem& problem) {
  v1::PlanBasis basis;
  for (v1::BasisDevice& device : DevicesOf(*problem.cluster))
    *basis.add_devices() = std::move(device);
  SetLinks(*problem.cluster, basis);
  SetProfiles(problem.profile, basis);
  return basis;
}

// Whether the search was made in vain already and has the same answer: the job's plan, its devices
// and the others, their links and profiles are the same, and its steps take about as long.
bool IsVain(const JobRecord& record, const ReplanProblem& problem) {
  constexpr double kAlike = 1.25;
  if (!record.vain_growth.has_value()) return false;
  const VainGrowth& vain = *record.vain_growth;
  if (vain.generation != problem.generation) return false;
  const v1::PlanBasis now = BasisOf(problem);
  if (vain.basis.devices_size() != now.devices_size() || !CheckBasis(vain.basis, now).ok())
    return false;
  const auto before = static_cast<double>(vain.step_time);
  const auto present = static_cast<double>(record.job.metrics.recent_step_time);
  return present <= before * kAlike && before <= present * kAlike;
}

}  // namespace

int64_t GrowsTo(const Job& job, int64_t free) {
  if (job.request == nullptr) return 0;
  const JobRequest& request = *job.request;
  if (request.grow == GrowthPolicy::kNone || !IsSought(request) || request.records.steps > 0)
    return 0;
  if (request.grow == GrowthPolicy::kBack) return std::max(request.num_devices, job.most_devices);
  const int64_t most = request.num_devices == 0 ? Cluster::kMostDevices : request.num_devices;
  return std::min(most, SizeOf(job.devices) + free);
}

void StopSeeking(JobRecord& record) {
  record.replanning->Cancel();
  record.replanning.reset();
  record.seeks_growth = false;
}

void NoteGrown(JobRecords& records, JobRecord& record, const Changeover& next, absl::Time now) {
  Job& job = record.job;
  record.growth_pauses.NoteGrowth(now);
  job.growth.clear();
  // The best plan on its own devices and others may give work to as many as it has.
  const std::string instead = DevicesInstead(next.devices, job.devices);
  if (instead.empty()) return;
  records.Note(
      job, EventKind::kGrowth,
      absl::StrCat("has ", instead, " after step ", job.checkpoint_step, ": ", next.grows));
}

void NoteNotGrown(JobRecords& records, JobRecord& record, const std::string& why, absl::Time now) {
  Job& job = record.job;
  record.growth_pauses.NoteVain({}, kAfterVain, now);
  job.growth =
      StaysOn(SizeOf(job.devices), std::max(job.most_devices, job.request->num_devices), why);
  records.Note(job, EventKind::kGrowth, job.growth);
}

void JobLife::SeekGrowth() {
  if (!planners_.replan || !records_.trouble().ok()) return;
  bool busy = false;
  std::vector<JobRecord*> may_grow;
  for (auto& [number, record] : records_.live()) {
    const Job& job = record.job;
    if (IsTerminal(job.state)) continue;
    busy |=
        record.seeks_growth || (record.changeover.has_value() && !record.changeover->grows.empty());
    // Whatever may be free, it is asked for below.
    const bool may = job.state == JobState::kRunning &&
                     GrowsTo(job, /*free=*/Cluster::kMostDevices) > SizeOf(job.devices);
    if (may) {
      may_grow.push_back(&record);
    } else if (!job.growth.empty()) {
      Say(records_, record, "");
    }
  }
  if (busy || may_grow.empty()) return;
  std::stable_sort(may_grow.begin(), may_grow.end(), [](const auto* a, const auto* b) {
    return a->job.request->priority > b->job.request->priority;
  });
  const JobQueue queue = Queue();
  for (JobRecord* record : may_grow) {
    if (SeekGrowthOf(*record, queue)) return;
  }
}

bool JobLife::SeekGrowthOf(JobRecord& record, const JobQueue& queue) {
  const Job& job = record.job;
  GrowthCase growth;
  growth.has = SizeOf(job.devices);
  growth.free = queue.state.devices.free;
  growth.wants = GrowsTo(job, growth.free);
  growth.waiting = ServableJobs(queue.state, options_.quotas, AccountOf(job));
  growth.quota_left = QuotaLeft(job, queue.state, options_.quotas);
  if (growth.wants <= growth.has) return false;
  const GrowthRoom room = RoomToGrow(growth);
  if (room.more == 0) {
    Say(records_, record, room.why);
    record.lacks_room = true;
    return false;
  }
  if (std::exchange(record.lacks_room, false)) {
    Say(records_, record,
        StaysOn(growth.has, growth.wants, "others are free and looked at when it has run a while"));
  }
  const bool soon =
      record.replanning != nullptr || record.changeover.has_value() || Now() < record.leave_after;
  if (soon || (!record.measured.has_value() && IsMeasured(job))) return false;
  const std::vector<RegisteredDevice> devices = DevicesToReplanFor(
      record, queue.state, options_.quotas, registry_->Devices(/*free_only=*/false));
  std::vector<std::string> offered;
  for (const RegisteredDevice& device : devices) {
    if (device.job.empty() && SizeOf(offered) < room.more)
      offered.push_back(device.QualifiedName());
  }
  // The rest is for those only that may be planned anew: this is asked at every change.
  if (offered.empty() || !record.growth_pauses.MayLook(offered, Now())) return false;
  const auto known = records_.profiles().Known();
  if (!known.ok()) return false;
  auto problem = ProblemOf(record, devices, static_cast<size_t>(growth.has + room.more),
                           registry_->Links(), **known);
  if (!problem.ok()) {
    Say(records_, record,
        StaysOn(growth.has, growth.wants, std::string(problem.status().message())));
    record.growth_pauses.NoteVain({}, kAfterVain, Now());
    return false;
  }
  if (IsVain(record, *problem)) {
    record.growth_pauses.NoteVain(Offered(job, problem->devices), kAfterVain, Now());
    return false;
  }
  problem->context = std::make_shared<SearchContext>(
      SearchContext::Clock::now() +
      absl::ToChronoNanoseconds(std::min(kSearchLimit, options_.planning_timeout)));
  record.replanning = problem->context;
  record.seeks_growth = true;
  if (planners_.replan(*std::move(problem)).ok()) return true;
  StopSeeking(record);  // Others are being planned.
  record.growth_pauses.NoteVain({}, kAfterVain, Now());
  return false;
}

void JobLife::EndGrowth(const ReplanProblem& problem, absl::StatusOr<ReplanResult> result) {
  JobRecord* const found = records_.Find(problem.number);
  if (found == nullptr || found->replanning != problem.context) return;
  JobRecord& record = *found;
  record.replanning.reset();
  record.seeks_growth = false;
  Job& job = record.job;
  if (suspended_ || job.state != JobState::kRunning || job.generation != problem.generation ||
      record.changeover.has_value())
    return;
  GrowthVerdict verdict;
  if (!result.ok()) {
    verdict.why = std::string(result.status().message());
  } else if (!result->better.has_value()) {
    verdict.why = result->message;
  } else {
    verdict = PaysToGrow({.steps_left = job.metrics.total_steps - job.metrics.step,
                          .step_time = job.metrics.recent_step_time,
                          .before = Nanos(result->present.evaluation().iteration_ns()),
                          .after = result->better->step_time,
                          .start = record.start_took});
  }
  if (verdict.pays) {
    record.changeover.emplace();
    record.changeover->plan = *std::move(result->better);
    record.changeover->devices = NamesOf(record.changeover->plan.devices, problem.devices);
    record.changeover->grows = verdict.why;
    if (Hold(records_, record)) {
      const std::string instead = DevicesInstead(record.changeover->devices, job.devices);
      return Say(records_, record,
                 absl::StrCat("gets ", instead.empty() ? "another plan" : instead, " after step ",
                              record.run->checkpoints().hold(), ": ", verdict.why));
    }
    record.changeover.reset();
    verdict.why = "it ends before";
  }
  NoteNotGrown(records_, record, verdict.why, Now());
  record.vain_growth.reset();
  // One that time cut short, or whose plan came too late for this step, may end otherwise.
  if (result.ok() && !verdict.pays && !problem.context->Stopped()) {
    record.vain_growth = {problem.generation, job.metrics.recent_step_time, BasisOf(problem)};
  }
  record.growth_pauses.NoteVain(Offered(job, problem.devices), kAfterVain, Now());
  records_.AnnounceChange(job);
}

}  // namespace stagewright
