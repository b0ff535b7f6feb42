#include "planner_service/lifecycle/job_life.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/wire/job_state.h"
#include "common/wire/topology_proto.h"
#include "planner_service/jobs/job_cluster.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/lifecycle/changeover.h"
#include "planner_service/lifecycle/measurements.h"
#include "planner_service/lifecycle/run_reports.h"
#include "planner_service/profiles/profile_choice.h"
#include "planner_service/runs/worker_messages.h"

namespace stagewright {
namespace {

constexpr int64_t kVersionsPerRestart = int64_t{1} << 32;
// How long a lost worker is waited for when others already gave up its job.
constexpr absl::Duration kLossIsKnownWithin = absl::Seconds(2);
constexpr char kRestarted[] = "the planner was restarted";

v1::ConnectResponse AbortOf(const Job& job) {
  return AbortMessage(job.name(), job.generation, job.message);
}

bool IsOfRun(JobState state, const v1::ConnectRequest& message) {
  switch (message.message_case()) {
    case v1::ConnectRequest::kPrepared:
    case v1::ConnectRequest::kConnected:
      return state == JobState::kStarting;
    case v1::ConnectRequest::kFailed:
      return true;
    default:
      return Runs(state);
  }
}

}  // namespace

JobLife::JobLife(Store* store, WorkerRegistry* registry, const JobManagerOptions& options,
                 StartPlanner start_planner)
    : records_(store, registry, options.on_change),
      registry_(registry),
      options_(options),
      start_planner_(std::move(start_planner)) {}

void JobLife::Suspend() {
  Freeze();
  records_.WriteWaiting(absl::InfiniteFuture());
  for (auto& [number, record] : records_.all()) records_.WriteSteps(record);
}

absl::Status JobLife::Recover() {
  ASSIGN_OR_RETURN(StoredJobs stored, records_.store().ReadJobs());
  next_ = stored.last_number + 1;
  for (const std::string& key : stored.damaged)
    notes_.push_back(absl::StrCat(JobOfEntry(key), " is damaged in the store and was set aside"));
  for (v1::Job& job : stored.jobs) {
    const std::string name = job.name();
    if (const absl::Status status = RecoverJob(std::move(job)); !status.ok()) {
      notes_.push_back(
          absl::StrCat(name, " is damaged in the store and was set aside: ", status.message()));
      RETURN_IF_ERROR(records_.store().SetJobAside(name));
    }
  }
  ASSIGN_OR_RETURN(requests_, records_.store().ReadRequests());
  return absl::OkStatus();
}

absl::Status JobLife::RecoverJob(v1::Job stored) {
  absl::StatusOr<JobRequest> request = JobRequest();
  if (!IsTerminal(stored.state())) {
    RETURN_IF_ERROR(records_.store().Complete(stored));
    request = FromProto(stored.spec());
  }
  ASSIGN_OR_RETURN(Job read, FromProto(std::move(stored)));
  JobRecord& record = records_.all()[read.number];
  record.job = std::move(read);
  record.told = record.job;
  Job& job = record.job;
  if (options_.on_change) options_.on_change(job);
  if (IsTerminal(job.state)) {
    ForgetParts(record);
    return absl::OkStatus();
  }
  if (auto steps = records_.store().ReadSteps(job); steps.ok()) {
    record.history = *std::move(steps);
  } else {
    notes_.push_back(absl::StrCat(job.name(), ": ", steps.status().message()));
  }
  // Progress is not stored, so the version may have been further on.
  job.version += kVersionsPerRestart;
  if (!request.ok()) {
    records_.Transition(record, JobState::kFailed, std::string(request.status().message()));
    return absl::OkStatus();
  }
  job.request = std::make_shared<const JobRequest>(*std::move(request));
  if (!Runs(job.state)) {
    records_.Transition(record, JobState::kPending, kRestarted);
    return absl::OkStatus();
  }
  // Workers run on without us; those that are back in time carry on under the same generation.
  record.run.emplace(job, absl::Now());
  for (const auto& [worker, devices] : record.run->workers()) record.run->Lose(worker);
  if (auto trace = records_.store().ReadTrace(job); trace.ok()) record.trace = *std::move(trace);
  record.trace.clear_measured();
  record.trace.clear_devices();
  for (const std::string& device : job.devices) record.trace.add_devices(device);
  records_.Transition(record, JobState::kRecovering, kRestarted);
  record.run->deadline = absl::Now() + options_.recovery_timeout;
  return absl::OkStatus();
}

absl::StatusOr<const Job*> JobLife::Submit(const v1::JobSpec& spec, JobRequest request,
                                           const std::string& request_id) {
  if (const auto it = requests_.find(request_id); !request_id.empty() && it != requests_.end()) {
    if (JobRecord* record = records_.Find(JobNumber(it->second))) return &ShownJob(*record);
  }
  RETURN_IF_ERROR(CheckWritable());
  Job job;
  job.number = next_;
  SetSpec(spec, job);
  job.request = std::make_shared<const JobRequest>(std::move(request));
  job.create_time = absl::Now();
  RETURN_IF_ERROR(records_.store().Write(job, /*steps=*/nullptr, request_id));
  ++next_;
  if (!request_id.empty()) requests_[request_id] = job.name();
  JobRecord& record = records_.all()[job.number];
  record.job = std::move(job);
  records_.Announce(record.job);
  Advance();
  return &ShownJob(record);
}

absl::Status JobLife::CheckWritable() const {
  return Annotate(records_.trouble(), "nothing new is taken until the state can be written again");
}

absl::Status JobLife::Cancel(int64_t number) {
  JobRecord& record = *records_.Find(number);
  RETURN_IF_ERROR(CheckWritable());
  if (record.job.state == JobState::kCancelled) return absl::OkStatus();
  if (IsTerminal(record.job.state)) {
    return absl::FailedPreconditionError(absl::StrCat(
        record.job.name(), " has ended already: ", v1::JobState_Name(ToProto(record.job.state))));
  }
  End(record, JobState::kCancelled, "cancelled by request");
  return Annotate(records_.trouble(), "it is cancelled as soon as the state can be written again");
}

absl::StatusOr<ReplanProblem> JobLife::BeginReplan(int64_t number, absl::Duration limit) {
  JobRecord& record = *records_.Find(number);
  ASSIGN_OR_RETURN(const OperatorProfile known, records_.profiles().Read());
  ASSIGN_OR_RETURN(ReplanProblem problem, ProblemOf(record, registry_->Devices(/*free_only=*/false),
                                                    registry_->Links(), known));
  if (limit <= absl::ZeroDuration()) limit = options_.planning_timeout;
  problem.context = std::make_shared<SearchContext>(SearchContext::Clock::now() +
                                                    absl::ToChronoNanoseconds(limit));
  record.replanning = problem.context;
  return problem;
}

absl::StatusOr<v1::ReplanJobResponse> JobLife::EndReplan(const ReplanProblem& problem,
                                                         absl::StatusOr<ReplanResult> result,
                                                         bool apply) {
  JobRecord& record = *records_.Find(problem.number);
  record.replanning.reset();
  RETURN_IF_ERROR(result.status());
  Job& job = record.job;
  if (suspended_) return absl::UnavailableError("the planner is shutting down");
  if (job.state != JobState::kRunning || job.generation != problem.generation)
    return absl::AbortedError(absl::StrCat(job.name(), " changed while it was planned anew"));
  v1::ReplanJobResponse response = ToProto(problem, *result, job.metrics);
  if (apply && result->better.has_value()) {
    record.changeover =
        Changeover{*std::move(result->better), std::move(result->cluster), problem.devices};
    if (!Hold(records_, record)) {
      record.changeover.reset();
      return absl::FailedPreconditionError(
          absl::StrCat(job.name(), " ends before it could change its plan"));
    }
    response.set_applied(true);
    response.set_after_step(record.run->checkpoints().hold());
  }
  *response.mutable_job() = ToProto(job, GraphDetail::kNames);
  return response;
}

void JobLife::Advance() {
  if (suspended_) return;
  for (auto& [number, record] : records_.all()) {
    if (!records_.trouble().ok()) return;
    if (record.job.state == JobState::kPending) Plan(record);
    if (record.job.state == JobState::kWaitingForDevices) TryStart(record);
  }
}

void JobLife::Plan(JobRecord& record) {
  Job& job = record.job;
  std::vector<RegisteredDevice> devices = registry_->Devices(/*free_only=*/true);
  auto wanted = static_cast<size_t>(job.request->num_devices);
  // After a loss the job goes on with what is left.
  if (job.restarts > 0) wanted = std::min(wanted, devices.size());
  if (devices.empty() || devices.size() < wanted) {
    const std::string message = wanted == 0
                                    ? "waiting for a free device"
                                    : absl::StrCat("waiting for ", wanted, " free devices, ",
                                                   devices.size(), " are connected");
    if (job.message != message) records_.Transition(record, JobState::kPending, message);
    return;
  }
  if (absl::Now() < job.create_time + options_.measuring_timeout && options_.measuring != nullptr &&
      options_.measuring()) {
    constexpr char kMeasuring[] = "waiting for links that are being measured";
    if (job.message != kMeasuring) records_.Transition(record, JobState::kPending, kMeasuring);
    return;
  }
  if (wanted > 0) devices.resize(wanted);
  auto cluster = JobCluster(devices, registry_->Links());
  if (!cluster.ok()) return End(record, JobState::kFailed, std::string(cluster.status().message()));

  record.cluster = ToProto(*cluster);
  job.devices.clear();
  for (const RegisteredDevice& device : devices) job.devices.push_back(device.QualifiedName());
  records_.Transition(record, JobState::kPlanning,
                      absl::StrCat("planning for ", devices.size(), " devices"));
  record.planning = std::make_shared<SearchContext>(
      SearchContext::Clock::now() + absl::ToChronoNanoseconds(options_.planning_timeout));
  job.warnings.clear();
  auto known = records_.profiles().Read();
  if (!known.ok()) job.Warn(absl::StrCat("planned without profiles: ", known.status().message()));
  const absl::Status queued =
      start_planner_(job, std::make_shared<const Cluster>(*std::move(cluster)),
                     std::make_shared<const OperatorProfile>(known.ok() ? ProfileOf(devices, *known)
                                                                        : OperatorProfile()),
                     record.planning);
  if (queued.ok()) return;
  record.planning.reset();
  records_.Transition(record, JobState::kPending, std::string(queued.message()));
}

void JobLife::OnPlanned(int64_t number, int64_t generation, absl::StatusOr<PlannedJob> plan) {
  if (suspended_) return;  // The service is ending, not the job: the next one plans it.
  JobRecord* record = records_.Find(number);
  if (record == nullptr || record->job.generation != generation ||
      record->job.state != JobState::kPlanning)
    return;
  record->planning.reset();
  if (!plan.ok()) return End(*record, JobState::kFailed, std::string(plan.status().message()));

  Adopt(*record, *std::move(plan));
  records_.Transition(*record, JobState::kWaitingForDevices, "");
  Advance();
}

void JobLife::Adopt(JobRecord& record, PlannedJob plan) {
  Job& job = record.job;
  ForgetMeasurement(record);
  record.trace.Clear();
  record.trace.mutable_predicted()->Swap(&plan.timeline);
  for (const TimedOperator& expected : plan.operators)
    *record.trace.add_predicted_operators() = ToProto(expected);
  for (const std::string& device : job.devices) record.trace.add_devices(device);
  // For a planner after this one. A job that cannot be measured then runs all the same.
  records_.store().WriteTrace(job, record.trace).IgnoreError();
  record.evaluations = std::move(plan.evaluations);
  job.plan = std::move(plan.best);
  job.planned_graph = plan.graph != nullptr ? std::move(plan.graph) : job.graph;
  if (plan.sequential != nullptr) job.sequential_plan = std::move(plan.sequential);
  job.working_devices = plan.working_devices;
  for (const std::string& warning : plan.warnings) job.Warn(warning);
  job.metrics.predicted_step_time = plan.step_time;
  job.metrics.memory = std::move(plan.memory);
}

void JobLife::TryStart(JobRecord& record) {
  Job& job = record.job;
  std::set<std::string> connected;
  for (const RegisteredDevice& device : registry_->Devices(/*free_only=*/false))
    connected.insert(device.QualifiedName());
  for (const std::string& device : job.devices) {
    if (connected.contains(device)) continue;
    records_.Transition(record, JobState::kPending,
                        absl::StrCat("device ", device, " is gone; planning again"));
    Plan(record);
    return;
  }
  if (absl::Status status = registry_->Allocate(job.name(), job.devices); !status.ok()) {
    if (job.message != status.message())
      records_.Transition(record, JobState::kWaitingForDevices, std::string(status.message()));
    return;
  }
  ++job.generation;
  record.run.emplace(job, absl::Now());
  records_.Transition(record, JobState::kStarting, "preparing workers");
  record.run->deadline = absl::Now() + options_.starting_timeout;
  v1::ConnectResponse message = PrepareMessage(job, record.cluster, record.evaluations);
  for (const auto& [worker, devices] : record.run->workers()) {
    SetDevices(job, devices, *message.mutable_prepare());
    records_.Send(record, worker, message);
  }
}

void JobLife::End(JobRecord& record, JobState state, const std::string& message) {
  Job& job = record.job;
  const bool on_workers = OnWorkers(job.state);
  if (record.planning != nullptr) record.planning->Cancel();
  if (record.replanning != nullptr) record.replanning->Cancel();
  record.changeover.reset();
  if (record.trace.measured_size() > 0) {
    records_.store()
        .WriteTrace(job, record.trace)
        .IgnoreError();  // It must not keep a job from ending.
  }
  records_.Transition(record, state, message);
  if (record.write_steps == absl::InfiniteFuture()) record.history = StepHistory();
  if (on_workers)
    records_.SendToAll(record, state == JobState::kSucceeded ? ReleaseMessage(job) : AbortOf(job));
  record.run.reset();
  job.request.reset();
  registry_->Release(job.name());
  Advance();
}

bool JobLife::MayRestart(const Job& job) const {
  return !suspended_ && job.restarts < job.request->max_restarts;
}

void JobLife::FailOrRestart(JobRecord& record, const std::string& message) {
  Job& job = record.job;
  if (!MayRestart(job)) return End(record, JobState::kFailed, message);
  const v1::ConnectResponse abort = AbortOf(job);
  ++job.restarts;
  job.resume_from.clear();
  record.changeover.reset();
  records_.Transition(record, JobState::kPending,
                      absl::StrCat(message, "; starting again from the last checkpoint"));
  records_.SendToAll(record, abort);
  record.run.reset();
  registry_->Release(job.name());
  Advance();
}

absl::StatusOr<int64_t> JobLife::Register(const v1::Register& message,
                                          const WorkerRegistry::Sink& sink) {
  ASSIGN_OR_RETURN(const int64_t session, registry_->Register(message, sink, absl::Now()));
  const std::string& worker = message.worker();
  v1::ConnectResponse welcome;
  welcome.mutable_registered()->set_heartbeat_interval_ns(
      absl::ToInt64Nanoseconds(options_.worker_timeout / 4));
  sink(welcome);
  std::set<std::string> resumed;
  for (const v1::RunningJob& running : message.running()) {
    JobRecord* record = records_.FindRun(worker, running.job(), running.generation());
    if (record != nullptr && Resume(*record, worker)) {
      resumed.insert(running.job());
      continue;
    }
    const v1::ConnectResponse over =
        AbortMessage(running.job(), running.generation(), "this generation of the job is over");
    if (JobRecord* known = records_.Find(JobNumber(running.job()))) {
      records_.Send(*known, worker, over);
    } else {
      sink(over);
    }
  }
  for (auto& [number, record] : records_.all()) {
    if (record.job.state == JobState::kRecovering && record.run->lost().contains(worker) &&
        !resumed.contains(record.job.name())) {
      End(record, JobState::kFailed,
          absl::StrCat(record.job.message, "; worker ", worker, " came back without the job"));
    }
  }
  Advance();
  return session;
}

bool JobLife::Resume(JobRecord& record, const std::string& worker) {
  Run& run = *record.run;
  if (!run.lost().contains(worker)) return false;
  std::vector<std::string> devices;
  for (const int32_t index : run.workers().at(worker))
    devices.push_back(record.job.devices[static_cast<size_t>(index)]);
  if (!registry_->Allocate(record.job.name(), devices).ok()) return false;
  run.Regain(worker);
  // It may wait for a change of plans that a planner before this one began.
  if (!record.changeover.has_value()) registry_->Send(worker, GoOnMessage(record.job));
  if (run.lost().empty()) records_.Transition(record, JobState::kRunning, "");
  // What it said of its share may be lost, and all would wait for it.
  if (record.changeover.has_value())
    FailHold(records_, record, /*again=*/true, absl::StrCat("worker ", worker, " was lost"));
  return true;
}

void JobLife::OnLost(const std::string& worker, const std::string& why) {
  if (suspended_) return;
  for (auto& [number, record] : records_.all()) {
    Job& job = record.job;
    if (!OnWorkers(job.state) || !record.run->HasWorker(worker) ||
        record.run->lost().contains(worker))
      continue;
    if (job.state == JobState::kStarting) {
      FailOrRestart(record, absl::StrCat("worker ", worker, " was lost while starting: ", why));
      continue;
    }
    const std::string message =
        absl::StrCat("worker ", worker, " was lost after step ", job.metrics.step, ": ", why);
    if (record.run->given_up) {
      FailOrRestart(record, message);
      continue;
    }
    // It may run on and come back. If it died, the devices it exchanged messages with say so before
    // long.
    record.run->Lose(worker);
    records_.Transition(record, JobState::kRecovering, message);
    record.run->deadline = absl::Now() + options_.worker_timeout;
  }
}

void JobLife::Tick(absl::Time now) {
  records_.WriteWaiting(now);
  for (auto& [number, record] : records_.all()) {
    if (now >= record.write_steps) records_.WriteSteps(record);
    const bool waits =
        !IsTerminal(record.job.state) && record.run.has_value() && !record.unstored.has_value();
    if (waits && now >= record.run->deadline) OnLate(record);
  }
  Advance();
}

void JobLife::OnLate(JobRecord& record) {
  Job& job = record.job;
  if (job.state == JobState::kStarting) {
    End(record, JobState::kFailed,
        absl::StrCat("not started in time: no answer from ",
                     absl::StrJoin(record.run->Unanswered(), ", ")));
  } else if (record.run->given_up) {
    End(record, JobState::kFailed, std::string(job.message));  // No worker was lost after all.
  } else {
    FailOrRestart(record, absl::StrCat(job.message, "; did not come back: ",
                                       absl::StrJoin(record.run->lost(), ", ")));
  }
}

void JobLife::OnMessage(const std::string& worker, const v1::ConnectRequest& message) {
  // Hands a report to `note` with the record that it is about, if it is about the present run.
  const auto take = [&](const auto& report, auto&& note) {
    JobRecord* record = records_.FindRun(worker, report.job(), report.generation());
    if (record != nullptr && IsOfRun(record->job.state, message)) note(*record, report);
  };
  switch (message.message_case()) {
    case v1::ConnectRequest::kPrepared:
      return take(message.prepared(),
                  [&](auto& record, auto& report) { OnPrepared(record, worker, report); });
    case v1::ConnectRequest::kConnected:
      return take(message.connected(), [&](auto& record, auto&) { OnConnected(record, worker); });
    case v1::ConnectRequest::kProgress:
      return take(message.progress(),
                  [&](auto& record, auto& report) { NoteProgress(records_, record, report); });
    case v1::ConnectRequest::kFinished:
      return take(message.finished(), [&](auto& record, auto& report) {
        NoteFinished(records_, record, worker, report);
      });
    case v1::ConnectRequest::kMerged:
      return take(message.merged(), [&](auto& record, auto& report) { OnMerged(record, report); });
    case v1::ConnectRequest::kFailed:
      return take(message.failed(),
                  [&](auto& record, auto& report) { OnFailed(record, worker, report); });
    case v1::ConnectRequest::kShardWritten:
      return take(message.shard_written(),
                  [&](auto& record, auto& report) { OnShard(record, report); });
    case v1::ConnectRequest::kCheckpointWritten:
      return take(message.checkpoint_written(),
                  [&](auto& record, auto& report) { OnCheckpoint(record, worker, report); });
    case v1::ConnectRequest::kStepsSoFar:
      return take(message.steps_so_far(),
                  [&](auto& record, auto& report) { NoteSteps(records_, record, report); });
    case v1::ConnectRequest::kRegister:
    case v1::ConnectRequest::kHeartbeat:
    case v1::ConnectRequest::kOperatorsProfiled:
    case v1::ConnectRequest::kProbeReady:
    case v1::ConnectRequest::kLinksProbed:
    case v1::ConnectRequest::MESSAGE_NOT_SET:
      return;  // The service's own affair.
  }
}

void JobLife::OnPrepared(JobRecord& record, const std::string& worker,
                         const v1::Prepared& message) {
  const Preparation preparation = FromProto(message);
  if (absl::Status status = record.run->Prepare(worker, preparation); !status.ok())
    return End(record, JobState::kFailed, std::string(status.message()));
  for (const std::string& warning : preparation.warnings) record.job.Warn(warning);
  if (record.run->IsPrepared()) records_.SendToAll(record, ConnectMessage(record.job, *record.run));
}

void JobLife::OnConnected(JobRecord& record, const std::string& worker) {
  Job& job = record.job;
  Run& run = *record.run;
  if (!run.Connect(worker, absl::Now())) return;
  job.metrics.total_steps = run.total_steps();
  if (!record.history.empty()) {
    record.history.DropAfter(run.first_step());
    record.write_steps = absl::Now();  // With the transition: the store must not know them either.
  }
  records_.Transition(record, JobState::kRunning, "");
  BeginMeasuring(record, absl::Now());
  records_.SendToAll(record, StartMessage(job));
}

void JobLife::OnMerged(JobRecord& record, const v1::Merged& message) {
  record.job.checkpoint_path = message.checkpoint_path();
  const int64_t stopped_after = record.run->completion().stopped_after;
  End(record, JobState::kSucceeded,
      stopped_after == 0 ? std::string()
                         : absl::StrCat("stopped early after step ", stopped_after,
                                        ": the evaluation loss got no better"));
}

void JobLife::OnFailed(JobRecord& record, const std::string& worker, const v1::Failed& message) {
  Job& job = record.job;
  Run& run = *record.run;
  // What the others say of a lost worker is an echo of its loss.
  const bool echo = job.state == JobState::kRecovering;
  const std::string text = absl::StrCat(echo ? absl::StrCat(job.message, "; ") : "", "worker ",
                                        worker, ": ", message.message());
  if (echo && run.given_up) return;  // Another echo, while the loss is waited for.
  // Another device's end is often told by those that it exchanged messages with first: the loss is
  // waited for.
  if (job.state == JobState::kRunning && MayRestart(job) &&
      message.code() == static_cast<int32_t>(absl::StatusCode::kUnavailable)) {
    records_.Transition(record, JobState::kRecovering, text);
    run.given_up = true;
    run.deadline = absl::Now() + kLossIsKnownWithin;
    return;
  }
  if (echo && !run.lost().empty()) return FailOrRestart(record, text);
  job.failure_code = message.code();
  End(record, JobState::kFailed, text);
}

void JobLife::OnShard(JobRecord& record, const v1::ShardWritten& message) {
  const bool held = ChangesAfter(record, message.step());
  const std::optional<std::string> failure = NoteShard(records_, record, message);
  if (failure.has_value()) return End(record, JobState::kFailed, *failure);
  if (held && !message.error().empty())
    FailHold(
        records_, record, message.skipped(),
        absl::StrCat("a device did not stop after step ", message.step(), ": ", message.error()));
}

void JobLife::OnCheckpoint(JobRecord& record, const std::string& worker,
                           const v1::CheckpointWritten& message) {
  const bool held = ChangesAfter(record, message.step());
  const std::optional<std::string> failure = NoteCheckpoint(records_, record, worker, message);
  if (failure.has_value()) return End(record, JobState::kFailed, *failure);
  if (!held) return;
  if (!message.error().empty()) {
    FailHold(records_, record, /*again=*/false,
             absl::StrCat("worker ", worker, ": ", message.error()));
  } else if (record.job.state == JobState::kRunning) {
    ChangeOver(record, message.path());
  } else {  // A worker is not heard of just now.
    FailHold(records_, record, /*again=*/false, record.job.message);
  }
}

void JobLife::ChangeOver(JobRecord& record, const std::string& checkpoint) {
  Job& job = record.job;
  // Devices that were free when the plan was made may be others' now.
  if (absl::Status held = registry_->Allocate(job.name(), record.changeover->devices); !held.ok())
    return FailHold(records_, record, /*again=*/false, std::string(held.message()));
  Changeover next = *std::move(record.changeover);
  record.changeover.reset();
  const v1::ConnectResponse abort =
      AbortMessage(job.name(), job.generation, "the job goes on under another plan");
  ++job.replans;
  job.resume_from = checkpoint;
  job.devices = std::move(next.devices);
  record.cluster = std::move(next.cluster);
  Adopt(record, std::move(next.plan));
  records_.Transition(record, JobState::kWaitingForDevices,
                      absl::StrCat("changing its plan after step ", job.checkpoint_step));
  records_.SendToAll(record, abort);
  record.run.reset();
  registry_->Release(job.name());
  if (!suspended_ && records_.trouble().ok()) TryStart(record);
  Advance();
}

}  // namespace stagewright
