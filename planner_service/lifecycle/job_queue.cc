#include "planner_service/lifecycle/job_queue.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/error_details.h"
#include "common/clock/steady_now.h"
#include "common/topology/preset_device.h"
#include "common/training/field_check.h"
#include "common/wire/topology_proto.h"
#include "planner_service/jobs/job_cluster.h"
#include "planner_service/lifecycle/changeover.h"
#include "planner_service/lifecycle/job_life.h"
#include "planner_service/lifecycle/planning_ahead.h"
#include "planner_service/lifecycle/restart_rules.h"
#include "planner_service/profiles/profile_choice.h"
#include "planner_service/queue/place_jobs.h"
#include "planner_service/queue/servable_jobs.h"
#include "planner_service/records/output_paths.h"
#include "planner_service/registry/transport_key.h"
#include "planner_service/runs/worker_messages.h"
#include "planner_service/wire/manual_devices.h"

namespace stagewright {
namespace {

constexpr absl::Duration kAskAgain = absl::Seconds(5);
constexpr size_t kMostMissing = 8;  // Devices that an error names.
constexpr char kMeasuring[] = "waiting for links that are being measured";

std::set<std::string> NamesOf(const std::vector<RegisteredDevice>& devices) {
  std::set<std::string> names;
  for (const RegisteredDevice& device : devices) names.insert(device.QualifiedName());
  return names;
}

DeviceCounts CountsOf(const std::vector<RegisteredDevice>& devices) {
  DeviceCounts counts;
  for (const RegisteredDevice& device : devices) {
    if (!device.job.empty() && !device.ending) continue;
    if (device.availability == v1::WORKER_AVAILABILITY_CORDONED) {
      ++counts.cordoned;
    } else if (device.availability == v1::WORKER_AVAILABILITY_DRAINING) {
      ++counts.draining;
    } else if (!device.available) {
      ++counts.quarantined;
    } else if (device.stuck) {
      ++counts.stuck;
    } else {
      ++(device.ending ? counts.ending : counts.free);
    }
  }
  return counts;
}

// How long so many steps take, if a job is known to take so long for one.
std::optional<absl::Duration> TimeOf(int64_t steps, Nanos step_time) {
  if (steps <= 0 || step_time <= 0) return std::nullopt;
  return static_cast<double>(steps) * absl::Nanoseconds(step_time.count());
}

NamedDevice Describe(const RegisteredDevice& device) {
  using State = NamedDevice::State;
  if (device.availability == v1::WORKER_AVAILABILITY_CORDONED)
    return {State::kOut, 0, "is cordoned"};
  if (device.availability == v1::WORKER_AVAILABILITY_DRAINING)
    return {State::kOut, 0, "is draining"};
  if (!device.available) return {State::kOut, 0, "is in quarantine"};
  if (device.stuck) return {State::kOut, 0, "the run before has not left yet"};
  if (device.ending) return {State::kEnding, 0, ""};
  if (device.job.empty()) return {State::kFree, 0, ""};
  return {State::kHeld, JobNumber(device.job), absl::StrCat(device.job, " uses")};
}

// All that jobs of `waiting` name.
std::map<std::string, NamedDevice> NamedBy(const std::vector<WaitingJob>& waiting,
                                           const std::vector<RegisteredDevice>& devices) {
  std::map<std::string, NamedDevice> named;
  for (const WaitingJob& job : waiting) {
    for (const std::string& name : job.named) named[name].why = "is not connected";
  }
  if (named.empty()) return named;
  for (const RegisteredDevice& device : devices) {
    const auto found = named.find(device.QualifiedName());
    if (found != named.end()) found->second = Describe(device);
  }
  return named;
}

// `closed` are the devices that no job gets after it.
HoldingJob Holding(const JobRecord& record, const std::set<std::string>& closed, absl::Time now) {
  const Job& job = record.job;
  HoldingJob holding;
  holding.number = job.number;
  holding.account = AccountOf(job);
  holding.priority = job.request->priority;
  // A run holds those alone that its plan has work for.
  const std::vector<std::string>& held =
      record.run.has_value() ? record.run->devices() : job.devices;
  holding.devices = static_cast<int64_t>(held.size());
  holding.returns = std::count_if(held.begin(), held.end(),
                                  [&](const auto& device) { return !closed.contains(device); });
  if (record.changeover.has_value()) holding.room_for = record.changeover->room_for;
  holding.preemptible = job.request->preemptible && CanStop(record, now);
  if (Runs(job.state)) {
    const JobMetrics& metrics = job.metrics;
    if (const auto left = TimeOf(metrics.total_steps - metrics.step, metrics.recent_step_time))
      holding.ends = now + *left;
  }
  return holding;
}

WaitingJob Waiting(const JobRecord& record) {
  const Job& job = record.job;
  const DeviceShare share = ShareOf(record);
  WaitingJob waiting;
  waiting.number = job.number;
  waiting.account = AccountOf(job);
  waiting.priority = job.request->priority;
  waiting.preemptible = job.request->preemptible;
  waiting.least = static_cast<int64_t>(share.least);
  waiting.most = static_cast<int64_t>(share.most);
  waiting.room_made = record.room_made;
  waiting.named = job.request->named_devices;
  if (job.preempted) {
    waiting.takes =
        TimeOf(job.metrics.total_steps - job.checkpoint_step, job.metrics.median_step_time);
  }
  return waiting;
}

// What the jobs of the account hold.
int64_t InUse(const QueueState& queue, const Account& account) {
  int64_t in_use = 0;
  for (const HoldingJob& holding : queue.holding)
    in_use += holding.account == account ? holding.devices : 0;
  return in_use;
}

std::string RoomText(const Job& job) {
  return absl::StrCat(job.name(), " (priority ", job.request->priority, ")");
}

// The job gets the plan that was sought for its devices; those that it gives nothing to do are free
// again.
void TakePlan(JobRecords& records, WorkerRegistry& registry, JobRecord& record, PlannedJob plan) {
  Job& job = record.job;
  job.devices = NamesOf(plan.devices, job.devices);
  registry.Release(job.name(), /*keep=*/job.devices);
  Adopt(records, record, std::move(plan));
}

}  // namespace

Account AccountOf(const Job& job) { return Account::Of(job.spec->owner(), job.spec->tenant()); }

JobQueue QueueOf(const JobRecords& records, const std::vector<RegisteredDevice>& devices,
                 absl::Time now, absl::Time measuring_since) {
  JobQueue queue;
  queue.state.now = now;
  queue.state.devices = CountsOf(devices);
  std::set<std::string> closed;
  for (const RegisteredDevice& device : devices) {
    if (!device.available) closed.insert(device.QualifiedName());
  }
  const std::map<std::string, std::vector<std::string>> all_ending = records.registry().Ending();
  for (const auto& [number, record] : records.live()) {
    const Job& job = record.job;
    if (IsTerminal(job.state)) continue;
    if (job.state != JobState::kPending) {
      queue.state.holding.push_back(Holding(record, closed, now));
      continue;
    }
    const auto ending = all_ending.find(job.name());
    std::string why = WaitsToStart(
        record, ending == all_ending.end() ? std::vector<std::string>() : ending->second, now);
    if (why.empty() && job.create_time > measuring_since) why = kMeasuring;
    queue.state.waiting.push_back(Waiting(record));
    queue.state.waiting.back().awaits_workers = now < record.workers_back_by;
    queue.state.waiting.back().held_back = !why.empty();
    if (!why.empty()) queue.held_back[number] = std::move(why);
  }
  queue.state.named = NamedBy(queue.state.waiting, devices);
  return queue;
}

absl::Status CheckDevices(const JobRequest& request, const std::vector<RegisteredDevice>& devices) {
  const std::set<std::string> there = NamesOf(devices);
  std::vector<std::string> missing;
  for (const std::string& name : request.named_devices) {
    if (!there.contains(name)) missing.push_back(absl::StrCat("\"", name, "\""));
  }
  const size_t planned = PlannedDevices(request), named = request.named_devices.size();
  const bool too_few = request.found && missing.size() == named && there.size() < planned;
  const std::string says = absl::StrCat(
      there.size(), there.size() == 1 ? " device is connected" : " devices are connected",
      too_few ? absl::StrCat(", too few for the plan's ", planned) : "",
      ": start workers, or plan for what is there");
  if (named == 0) {
    return too_few ? WrongField("spec.", "strategy", "cannot be carried out: ", says)
                   : absl::OkStatus();
  }
  if (missing.empty()) {
    const bool more = static_cast<size_t>(request.num_devices) > named;
    return more ? WrongNumber(request) : absl::OkStatus();
  }
  const size_t untold = missing.size() - std::min(missing.size(), kMostMissing);
  const char* noun = missing.size() == 1 ? "names the device " : "names the devices ";
  missing.resize(missing.size() - untold);
  if (untold > 0) missing.push_back(absl::StrCat(untold, " more"));
  return WrongField("spec.", "plan_options.manual", noun, absl::StrJoin(missing, ", "),
                    ", which no connected worker has; ", says);
}

bool MayComeBack(const std::vector<std::string>& wanted, const std::vector<RegisteredDevice>& there,
                 const std::vector<Event>& events) {
  std::set<std::string> here = NamesOf(there);
  for (const Event& event : events)
    if (event.kind == EventKind::kWorkerConnected) here.insert(event.worker);
  return std::any_of(wanted.begin(), wanted.end(), [&](const std::string& device) {
    return !here.contains(device) && !here.contains(device.substr(0, device.find('/')));
  });
}

bool GoByNumber(const std::vector<std::string>& named, const std::vector<RegisteredDevice>& devices,
                absl::Duration workers_come_back) {
  return StandForOthers(named, NamesOf(devices)) &&
         (workers_come_back <= absl::ZeroDuration() ||
          std::all_of(named.begin(), named.end(), IsPresetDevice));
}

absl::Status Lacking(absl::Status status, absl::Duration workers_come_back) {
  if (status.ok() || workers_come_back <= absl::ZeroDuration()) return status;
  return WithRetryAfter(absl::UnavailableError(absl::StrCat(
                            status.message(), "; workers come back to a planner that has started")),
                        std::min(workers_come_back, kAskAgain));
}

std::optional<int64_t> QuotaLeft(const Job& job, const QueueState& queue, const QueueRules& rules) {
  const Account account = AccountOf(job);
  const auto quota = rules.QuotaOf(account);
  if (!quota.has_value()) return std::nullopt;
  return *quota - InUse(queue, account);
}

std::vector<RegisteredDevice> DevicesToReplanFor(const JobRecord& record, const QueueState& queue,
                                                 const QueueRules& rules,
                                                 std::vector<RegisteredDevice> devices) {
  const Job& job = record.job;
  int64_t more = ServableJobs(queue, rules, AccountOf(job)) == 0 ? queue.devices.free : 0;
  if (const auto left = QuotaLeft(job, queue, rules)) more = std::min(more, *left);
  std::erase_if(devices, [&](const RegisteredDevice& device) {
    const bool free = device.job.empty() && device.available;
    return device.job != job.name() && !(free && more-- > 0);
  });
  return devices;
}

std::string MayNotChangeTo(const Job& job, const std::vector<std::string>& devices,
                           const QueueState& queue, const QueueRules& rules) {
  const std::set<std::string> own(job.devices.begin(), job.devices.end());
  const bool takes_more = std::any_of(devices.begin(), devices.end(),
                                      [&](const auto& device) { return !own.contains(device); });
  const Account account = AccountOf(job);
  const std::optional<int64_t> quota = rules.QuotaOf(account);
  const auto wanted = static_cast<int64_t>(devices.size()),
             held = static_cast<int64_t>(job.devices.size());
  const int64_t others = InUse(queue, account) - held;
  // What it holds already it keeps, whatever the quota has come to be.
  if (quota.has_value() && wanted > held && others + wanted > *quota)
    return QuotaUsed(account, *quota, others, wanted);
  return takes_more && ServableJobs(queue, rules, account) > 0 ? "other jobs wait for devices" : "";
}

void JobLife::Advance() {
  if (suspended_) return;
  for (auto& [number, record] : records_.live()) {
    if (!records_.trouble().ok()) return;
    if (record.job.state == JobState::kWaitingForDevices) TryStart(record);
  }
  ServeQueue();
  if (!records_.trouble().ok()) return;
  for (auto& [number, record] : records_.live()) LeaveDraining(records_, record, Now());
  SeekGrowth();
  v1::ConnectResponse may_leave;
  may_leave.mutable_may_leave();
  for (const std::string& worker : registry_->TakeIdleLeavers()) registry_->Send(worker, may_leave);
}

JobQueue JobLife::Queue() const {
  const bool measuring = options_.measuring != nullptr && options_.measuring();
  const absl::Time since =
      measuring ? absl::Now() - options_.measuring_timeout : absl::InfiniteFuture();
  return QueueOf(records_, registry_->Devices(/*free_only=*/false), Now(), since);
}

void JobLife::ServeQueue() {
  if (!records_.trouble().ok()) return;
  const JobQueue queue = Queue();
  const QueueDecision decision = PlaceJobs(queue.state, options_.quotas);
  for (const int64_t number : decision.spared) KeepRunning(records_, *records_.Find(number));
  for (const Preemption& preemption : decision.preemptions) {
    JobRecord& for_job = *records_.Find(preemption.room_for);
    for_job.room_made |= MakeRoom(records_, *records_.Find(preemption.number), preemption.room_for,
                                  RoomText(for_job.job), Now());
  }
  for (const QueuedJob& queued : decision.queued) {
    if (!records_.trouble().ok()) return;
    const bool held_back = queued.reason == WaitReason::kHeldBack;
    KeepWaiting(*records_.Find(queued.number), queued,
                held_back ? queue.held_back.at(queued.number) : queued.text);
  }
  for (const StartingJob& start : decision.starts) {
    if (!records_.trouble().ok()) return;
    // A job that ends has others served at once.
    if (!Plan(*records_.Find(start.number), start, queue)) return;
  }
}

void JobLife::KeepWaiting(JobRecord& record, const QueuedJob& queued, const std::string& why) {
  Job& job = record.job;
  const bool put_back = !record.put_back.empty() && queued.reason != WaitReason::kHeldBack;
  const std::string message = put_back ? absl::StrCat(record.put_back, "; ", why) : why;
  const std::string reason = WaitReasonName(queued.reason);
  const auto position = static_cast<int32_t>(queued.position);
  if (job.message == message && job.queue_position == position && job.waits_for == reason) return;
  job.queue_position = position;
  job.waits_for = reason;
  job.message = message;
  // A planner after this one finds it out anew.
  records_.AnnounceChange(job);
}

bool JobLife::Plan(JobRecord& record, const StartingJob& start, const JobQueue& queue) {
  Job& job = record.job;
  std::vector<RegisteredDevice> devices = registry_->Devices(/*free_only=*/true);
  // A worker that does not end the job's run before gets no part of the next one.
  const std::vector<std::string> stuck = registry_->Ending(job.name());
  std::erase_if(devices, [&](const RegisteredDevice& device) {
    if (std::find(stuck.begin(), stuck.end(), device.worker) != stuck.end()) return true;
    const std::string name = device.QualifiedName();
    return queue.state.named.contains(name) &&
           std::find(start.named.begin(), start.named.end(), name) == start.named.end();
  });
  // The others are counted only: as many as there are besides these.
  auto others = start.devices - static_cast<int64_t>(start.named.size());
  std::erase_if(devices, [&](const RegisteredDevice& device) {
    return !queue.state.named.contains(device.QualifiedName()) && others-- <= 0;
  });
  const auto wanted = static_cast<size_t>(start.devices);
  // More than a plan may have are left to others.
  constexpr auto kMost = static_cast<size_t>(Cluster::kMostDevices);
  if (devices.size() < wanted) return true;  // A worker has just been lost.
  devices.resize(std::min(wanted, kMost));
  auto cluster = JobCluster(devices, registry_->Links());
  if (!cluster.ok()) {
    End(record, JobState::kFailed, std::string(cluster.status().message()));
    return false;
  }
  std::vector<std::string> names;
  for (const RegisteredDevice& device : devices) names.push_back(device.QualifiedName());
  if (!registry_->Allocate(job.name(), names).ok()) return true;

  job.devices = std::move(names);
  job.queue_position = 0;
  job.waits_for.clear();
  job.warnings.clear();
  auto known = records_.profiles().Known();
  if (!known.ok()) job.Warn(absl::StrCat("planned without profiles: ", known.status().message()));
  auto profile = std::make_shared<const OperatorProfile>(
      known.ok() ? ProfileOf(devices, *cluster, **known) : OperatorProfile());
  if (const auto plan = record.ahead.Find(PlanSource(*cluster, *profile)); plan != nullptr) {
    TakePlan(records_, *registry_, record, ToProto(*plan, *cluster));
    records_.Transition(record, JobState::kWaitingForDevices,
                        absl::StrCat("planned ahead for ", devices.size(), " devices"));
    if (records_.trouble().ok()) TryStart(record);
    return true;
  }
  records_.Transition(record, JobState::kPlanning,
                      absl::StrCat("planning for ", devices.size(), " devices"));
  record.planning = std::make_shared<SearchContext>(
      SearchContext::Clock::now() + absl::ToChronoNanoseconds(options_.planning_timeout));
  const absl::Status queued =
      planners_.plan(job, std::make_shared<const Cluster>(*std::move(cluster)), std::move(profile),
                     record.planning);
  if (queued.ok()) return true;
  record.planning.reset();
  records_.Note(job, EventKind::kRefused, std::string(queued.message()));
  PlanAgain(record, std::string(queued.message()));
  return true;
}

void JobLife::PlanAgain(JobRecord& record, const std::string& why) {
  registry_->Release(record.job.name());
  records_.Transition(record, JobState::kPending, why);
}

void JobLife::KeepPlan(int64_t number, PlanSource source, std::shared_ptr<const JobPlan> plan) {
  JobRecord* record = records_.Find(number);
  if (record == nullptr || IsTerminal(record->job.state) || !MayRestart(record->job)) return;
  // Another device than a given plan names is none for it, however alike they are.
  if (!IsSought(*record->job.request)) return;
  record->ahead.Keep(std::move(source), std::move(plan));
}

void JobLife::OnPlanned(int64_t number, int64_t generation, absl::StatusOr<PlannedJob> plan) {
  if (suspended_) return;  // The service is ending, not the job: the next one plans it.
  JobRecord* record = records_.Find(number);
  if (record == nullptr || record->job.generation != generation ||
      record->job.state != JobState::kPlanning)
    return;
  record->planning.reset();
  if (!plan.ok() && MayWaitForMore(*record, plan.status())) {
    record->least_devices = record->job.devices.size() + 1;
    PlanAgain(*record, std::string(plan.status().message()));
    return Advance();
  }
  if (!plan.ok()) return End(*record, JobState::kFailed, std::string(plan.status().message()));

  TakePlan(records_, *registry_, *record, *std::move(plan));
  records_.Transition(*record, JobState::kWaitingForDevices, "");
  Advance();
}

void JobLife::TryStart(JobRecord& record) {
  Job& job = record.job;
  std::set<std::string> there;
  const std::vector<RegisteredDevice> registered = registry_->Devices(/*free_only=*/false);
  for (const RegisteredDevice& device : registered) {
    const bool may_have = device.available && (device.job.empty() || device.ending);
    if (may_have || device.job == job.name()) there.insert(device.QualifiedName());
  }
  if (Now() >= record.settled_by) {  // Those that do not end a run before are not waited for.
    const std::vector<std::string> stuck = registry_->Ending(job.name());
    std::erase_if(there, [&stuck](const std::string& device) {
      const std::string worker = device.substr(0, device.find('/'));
      return std::find(stuck.begin(), stuck.end(), worker) != stuck.end();
    });
  }
  for (const std::string& device : job.devices) {
    if (!there.contains(device))
      return PlanAgain(record, absl::StrCat("device ", device, " is gone; planning again"));
  }
  if (absl::Status status = registry_->Allocate(job.name(), job.devices); !status.ok()) {
    if (job.message != status.message())
      records_.Transition(record, JobState::kWaitingForDevices, std::string(status.message()));
    return;
  }
  ++job.generation;
  record.run.emplace(job, SteadyNow());
  job.preempted = false;
  job.preempted_devices = 0;
  job.most_devices = std::max(job.most_devices, static_cast<int32_t>(job.devices.size()));
  record.room_made = false;
  record.put_back.clear();
  records_.Transition(record, JobState::kStarting, "preparing workers");
  record.run->deadline = Now() + options_.starting_timeout;
  v1::ConnectResponse message = PrepareMessage(job, record.cluster, record.evaluations,
                                               UnfinishedRuns(records_.live(), job.number));
  message.mutable_prepare()->set_transport_key(NewTransportKey(registered, job.devices));
  if (record.unwritten.has_value() && message.prepare().restart() &&
      record.unwritten->graph_sha256 == job.planned_graph.seal()->hash)
    *message.mutable_prepare()->mutable_unwritten() = record.unwritten->manifest;
  for (const auto& [worker, devices] : record.run->workers()) {
    v1::Prepare& prepare = *message.mutable_prepare();
    SetDevices(job, devices, prepare);
    if (registry_->KeepsGraphs(worker)) {
      NameGraph(job, prepare);
    } else {
      SetGraph(job, prepare);
    }
    records_.Send(record, worker, message);
  }
}

}  // namespace stagewright
