#include "planner_service/lifecycle/job_life.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/wire/job_state.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/lifecycle/changeover.h"
#include "planner_service/lifecycle/job_growth.h"
#include "planner_service/lifecycle/measurements.h"
#include "planner_service/lifecycle/planning_ahead.h"
#include "planner_service/lifecycle/restart_rules.h"
#include "planner_service/lifecycle/run_reports.h"
#include "planner_service/records/output_paths.h"
#include "planner_service/records/retention.h"
#include "planner_service/records/told_of.h"
#include "planner_service/runs/check_report.h"
#include "planner_service/runs/worker_messages.h"

namespace stagewright {
namespace {

// In one tick, under the lock: each job that is forgotten is a durable write.
constexpr absl::Duration kForgetFor = absl::Milliseconds(50);
constexpr char kRestarted[] = "the planner was restarted";
constexpr char kShuttingDown[] = "the planner is shutting down";

// What the job was last known to have done, until its workers say more.
void ShowNewestStep(JobRecord& record) {
  if (record.history.empty()) return;
  const v1::ListJobStepsResponse known = record.history.ToProto(record.job.metrics.step);
  if (known.steps().empty()) return;
  const v1::JobStep& newest = *known.steps().rbegin();
  record.job.metrics.step = newest.step();
  record.job.metrics.loss = newest.loss();
  record.job.metrics.step_time = Nanos(newest.step_ns());
}

}  // namespace

JobLife::JobLife(Store* store, ProfileStore* profiles, WorkerRegistry* registry,
                 const JobManagerOptions& options, JobPlanners planners)
    : records_(store, profiles, registry, options.on_change, options.on_event),
      registry_(registry),
      options_(options),
      planners_(std::move(planners)) {}

void JobLife::Freeze() {
  suspended_ = true;
  for (auto& [number, record] : records_.live()) {
    for (const auto& search : {record.planning, record.replanning, record.ahead.search})
      if (search != nullptr) search->Cancel();
  }
}

void JobLife::Suspend() {
  Freeze();
  records_.WriteWaiting(absl::InfiniteFuture());
  for (auto& [number, record] : records_.live()) records_.WriteSteps(record);
  records_.WriteLogs();
}

absl::Status JobLife::Recover() {
  ASSIGN_OR_RETURN(StoredJobs stored, records_.store().ReadJobs());
  ASSIGN_OR_RETURN(next_, records_.store().ReadNextNumber());
  next_ = std::max(next_, stored.last_number + 1);
  for (const std::string& key : stored.damaged)
    notes_.push_back(absl::StrCat(JobOfEntry(key), " is damaged in the store and was set aside"));
  RecoverEnded(std::move(stored.ended));
  ASSIGN_OR_RETURN(first_version_, records_.store().BeginLife(stored.jobs));
  JobParts::Blobs blobs;
  for (v1::Job& job : stored.jobs) {
    const std::string name = job.name();
    if (absl::Status status = RecoverJob(std::move(job), blobs); !status.ok()) {
      // A store that does not answer now is no damage.
      if (!absl::IsDataLoss(status) && !absl::IsInvalidArgument(status)) return status;
      notes_.push_back(
          absl::StrCat(name, " is damaged in the store and was set aside: ", status.message()));
      RETURN_IF_ERROR(records_.store().SetJobAside(name));
    }
  }
  ASSIGN_OR_RETURN(const auto requests, records_.store().ReadRequests());
  requests_.Load(requests);
  return absl::OkStatus();
}

void JobLife::RecoverEnded(std::vector<EndedJob> ended) {
  for (EndedJob& job : ended) records_.ended().Add(std::move(job));
  if (!options_.on_found_ended) return;
  for (const auto& [state, jobs] : records_.ended().CountByState())
    options_.on_found_ended(state, jobs);
}

absl::Status JobLife::RecoverJob(v1::Job stored, JobParts::Blobs& blobs) {
  RETURN_IF_ERROR(records_.store().Complete(stored, blobs));
  absl::StatusOr<JobRequest> request = FromProto(stored.spec());
  ASSIGN_OR_RETURN(Job read, FromProto(std::move(stored)));
  JobRecord& record = records_.live()[read.number];
  record.job = std::move(read);
  Job& job = record.job;
  job.stragglers.clear();
  record.told = job;
  if (options_.on_change) options_.on_change(job);
  if (const absl::Status status = records_.ReadSteps(record); !status.ok())
    notes_.push_back(absl::StrCat(job.name(), ": ", status.message()));
  ShowNewestStep(record);
  job.version = std::max(job.version + 1, first_version_);
  if (!request.ok()) {
    records_.Transition(record, JobState::kFailed, std::string(request.status().message()));
    return absl::OkStatus();
  }
  job.request = std::make_shared<const JobRequest>(*std::move(request));
  // One that an older planner has stored does not say it.
  if (GoesOn(job) || Runs(job.state))
    job.most_devices = std::max(job.most_devices, static_cast<int32_t>(job.devices.size()));
  record.workers_back_by = Now() + options_.recovery_timeout;
  if (!Runs(job.state)) {
    // What is left for a job to go on with is not known before its workers had time to come back,
    // nor what all devices are.
    if (GoesOn(job) || job.request->num_devices == 0) {
      record.put_back = kRestarted;
      record.start_after = record.workers_back_by;
    }
    // Thousands may wait: what did not change is not written.
    if (job.state != JobState::kPending)
      records_.Transition(record, JobState::kPending, kRestarted);
    return absl::OkStatus();
  }
  // Workers run on without us; those that are back in time carry on under the same generation.
  record.run.emplace(job, SteadyNow());
  record.run->recovered = true;
  for (const auto& [worker, devices] : record.run->workers())
    record.run->Lose(worker, record.workers_back_by);
  if (auto trace = records_.store().ReadTrace(job.number); trace.ok())
    record.trace = *std::move(trace);
  record.trace.clear_measured();
  record.trace.clear_devices();
  for (const std::string& device : job.devices) record.trace.add_devices(device);
  records_.Transition(record, JobState::kRecovering, kRestarted);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> JobLife::Submit(Job job, const std::string& request_id,
                                        const std::string& digest, const std::string& client) {
  ASSIGN_OR_RETURN(const KnownRequest* known, requests_.Find(request_id, digest));
  if (known != nullptr) {
    const int64_t number = JobNumber(known->job);
    if (records_.Knows(number)) return number;
  }
  RETURN_IF_ERROR(CheckOutput(records_.live(), job.spec->output_path()));
  RETURN_IF_ERROR(CheckWritable());
  RETURN_IF_ERROR(ForgetDoubtful());
  job.number = next_;
  job.create_time = absl::Now();
  job.events = {job.EventOf(EventKind::kSubmitted, job.spec->display_name())};
  const absl::Status written = records_.store().Write(job, /*steps=*/nullptr, request_id, digest);
  // It may be there, under a number and an id that no other job may have then.
  if (absl::IsDeadlineExceeded(written)) {
    doubtful_ = {job, request_id};
    ++next_;
  }
  if (!written.ok()) records_.NoteRefused(written);
  RETURN_IF_ERROR(ToldOf(written));
  ++next_;
  requests_.Add(request_id, {job.name(), digest});
  const int64_t number = job.number;
  JobRecord& record = records_.live()[number];
  record.job = std::move(job);
  Event told = record.job.events[0];
  told.request = request_id;
  told.client = client;
  records_.Report(told);
  records_.Announce(record.job);
  Advance();
  return number;
}

absl::Status JobLife::ForgetDoubtful() {
  if (!doubtful_.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(
      ToldOf(records_.store().Remove(doubtful_->job.number, {doubtful_->request_id}, next_)));
  doubtful_.reset();
  return absl::OkStatus();
}

absl::Status JobLife::CheckWritable() const {
  return Annotate(ToldOf(records_.trouble()),
                  "nothing new is taken until the state can be written again");
}

absl::StatusOr<v1::Worker> JobLife::SetAvailability(const std::string& worker,
                                                    v1::WorkerAvailability availability) {
  ASSIGN_OR_RETURN(v1::Worker told, registry_->SetAvailability(worker, availability));
  Advance();
  return told;
}

absl::Status JobLife::MaySubmit(const Job& job, const std::string& id,
                                const std::string& digest) const {
  ASSIGN_OR_RETURN(const KnownRequest* known, requests_.Find(id, digest));
  if (known != nullptr) return absl::OkStatus();
  return CheckOutput(records_.live(), job.spec->output_path());
}

absl::Status JobLife::Delete(int64_t number) {
  const JobState state = records_.StateOf(number);
  RETURN_IF_ERROR(Forget(records_, requests_, number, next_));
  if (options_.on_forgotten) options_.on_forgotten(number, state);
  return absl::OkStatus();
}

void JobLife::ForgetOld(absl::Time now) {
  if (suspended_ || now < forget_again_) return;
  const absl::Time begun = SteadyNow();
  while (true) {
    const int64_t number = OldestExpired(records_.ended(), options_.keep, now);
    if (number < 0) break;
    if (SteadyNow() - begun > kForgetFor) return;  // The others with the next tick.
    // A store that fails is tried again; the others would fail, too.
    if (!Delete(number).ok()) break;
  }
  forget_again_ = now + absl::Seconds(10);
}

absl::Status JobLife::Cancel(int64_t number, const std::string& request_id) {
  const std::string name = absl::StrCat("jobs/", number);
  const JobState state = records_.StateOf(number);
  const std::string digest = DigestOfCancel(name);
  ASSIGN_OR_RETURN(const KnownRequest* known, requests_.Find(request_id, digest));
  JobRecord* const record = records_.Find(number);
  const bool unstored = record != nullptr && record->unstored.has_value();
  if (IsTerminal(state) && known != nullptr && !unstored) return absl::OkStatus();
  RETURN_IF_ERROR(CheckWritable());
  if (state == JobState::kCancelled) return absl::OkStatus();
  if (IsTerminal(state)) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " has ended already: ", JobStateName(state)));
  }
  End(*record, JobState::kCancelled, "cancelled by request");
  // Without it a call that is repeated finds the job cancelled all the same.
  const KnownRequest request = {name, digest};
  if (!request_id.empty() && records_.trouble().ok() &&
      records_.store().WriteRequest(request_id, request).ok())
    requests_.Add(request_id, request);
  return Annotate(ToldOf(records_.trouble()),
                  "it is cancelled as soon as the state can be written again");
}

absl::StatusOr<ReplanProblem> JobLife::BeginReplan(int64_t number, absl::Duration limit) {
  if (suspended_) return absl::UnavailableError(kShuttingDown);
  JobRecord* const found = records_.Find(number);
  if (found == nullptr) return NotRunning(number, records_.StateOf(number));
  JobRecord& record = *found;
  if (record.seeks_growth) StopSeeking(record);  // Who asks comes first.
  ASSIGN_OR_RETURN(const auto known, records_.profiles().Known());
  const std::vector<RegisteredDevice> devices = DevicesToReplanFor(
      record, Queue().state, options_.quotas, registry_->Devices(/*free_only=*/false));
  const int32_t most = record.job.request == nullptr ? 0 : record.job.request->num_devices;
  ASSIGN_OR_RETURN(ReplanProblem problem, ProblemOf(record, devices, static_cast<size_t>(most),
                                                    registry_->Links(), *known));
  if (limit <= absl::ZeroDuration()) limit = options_.planning_timeout;
  problem.context = std::make_shared<SearchContext>(SearchContext::Clock::now() +
                                                    absl::ToChronoNanoseconds(limit));
  record.replanning = problem.context;
  return problem;
}

absl::StatusOr<v1::ReplanJobResponse> JobLife::EndReplan(const ReplanProblem& problem,
                                                         absl::StatusOr<ReplanResult> result,
                                                         bool apply) {
  JobRecord* const found = records_.Find(problem.number);
  if (found == nullptr) {
    return absl::AbortedError(
        absl::StrCat(problem.job, records_.Knows(problem.number) ? " ended" : " was deleted",
                     " while it was planned anew"));
  }
  JobRecord& record = *found;
  record.replanning.reset();
  if (suspended_) return absl::UnavailableError(kShuttingDown);
  RETURN_IF_ERROR(result.status());
  Job& job = record.job;
  if (job.state != JobState::kRunning || job.generation != problem.generation ||
      record.changeover.has_value())
    return absl::AbortedError(absl::StrCat(job.name(), " changed while it was planned anew"));
  v1::ReplanJobResponse response = ToProto(problem, *result, job.metrics);
  if (apply && result->better.has_value()) {
    record.changeover.emplace();
    record.changeover->plan = *std::move(result->better);
    record.changeover->devices = NamesOf(record.changeover->plan.devices, problem.devices);
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

absl::Time JobLife::Now() const { return std::max(SteadyNow(), ticked_); }

void JobLife::End(JobRecord& record, JobState state, const std::string& message) {
  Job& job = record.job;
  if (record.planning != nullptr) record.planning->Cancel();
  if (record.replanning != nullptr) record.replanning->Cancel();
  record.changeover.reset();
  job.queue_position = 0;
  job.waits_for.clear();
  job.growth.clear();
  job.stragglers.clear();
  job.preempted = false;
  job.preempted_devices = 0;
  if (record.trace.measured_size() > 0) {
    records_.store()
        .WriteTrace(job, record.trace)
        .IgnoreError();  // It must not keep a job from ending.
  }
  records_.Transition(record, state, message);
  if (record.write_steps == absl::InfiniteFuture()) record.history = StepHistory();
  EndRun(record, state == JobState::kSucceeded ? ReleaseMessage(job) : AbortMessage(job));
  job.request.reset();
  record.ahead = PlansAhead();
  Advance();
}

void JobLife::EndRun(JobRecord& record, const v1::ConnectResponse& message,
                     const std::vector<std::string>& keep) {
  Job& job = record.job;
  EndLooking(record);
  if (!record.run.has_value()) return registry_->Release(job.name());
  records_.SendToAll(record, message);
  registry_->EndRun(job.name(), job.generation, record.run->devices(), keep);
  record.run.reset();
}

absl::StatusOr<int64_t> JobLife::Register(const v1::Register& message,
                                          const WorkerRegistry::Sink& sink) {
  ASSIGN_OR_RETURN(const int64_t session, registry_->Register(message, sink, SteadyNow()));
  const std::string& worker = message.worker();
  v1::ConnectResponse welcome;
  welcome.mutable_registered()->set_heartbeat_interval_ns(
      absl::ToInt64Nanoseconds(options_.worker_timeout / 4));
  welcome.mutable_registered()->set_numbers_log_lines(true);
  sink(welcome);
  std::set<std::string> resumed;
  for (const v1::RunningJob& running : message.running()) {
    if (running.ending()) {
      registry_->NoteEnding(worker, running);
      continue;
    }
    JobRecord* record = records_.FindRun(worker, running.job(), running.generation());
    if (record != nullptr && record->run->recovered) {
      record->run->settled_flush = std::max(record->run->settled_flush, running.flush_after());
    }
    if (record != nullptr && Resume(*record, worker)) {
      resumed.insert(running.job());
      continue;
    }
    const v1::ConnectResponse over =
        AbortMessage(running.job(), running.generation(), "this generation of the job is over");
    registry_->NoteEnding(worker, running);
    if (JobRecord* known = records_.Find(JobNumber(running.job()))) {
      records_.Send(*known, worker, over);
    } else {
      sink(over);
    }
  }
  for (auto& [number, record] : records_.live()) {
    const bool awaited = record.job.state == JobState::kRecovering &&
                         record.run->HasWorker(worker) && !record.run->gone().contains(worker);
    if (!awaited) continue;
    if (!resumed.contains(record.job.name())) {
      record.run->NoteGone(worker);
      record.job.message += absl::StrCat("; worker ", worker, " came back without the job");
    }
    AfterReturn(record);
  }
  Advance();
  return session;
}

void JobLife::Forgive(absl::Duration stood_still, absl::Time now) {
  ticked_ = std::max(ticked_, now);
  records_.Forgive(stood_still, now);
}

void JobLife::Tick(absl::Time now) {
  ticked_ = std::max(ticked_, now);
  registry_->Tick(now);
  records_.WriteWaiting(now);
  for (auto& [number, record] : records_.live()) {
    if (now >= record.write_steps) records_.WriteSteps(record);
    const bool waits =
        !IsTerminal(record.job.state) && record.run.has_value() && !record.unstored.has_value();
    if (waits && now >= record.run->due()) OnLate(record);
    if (waits && record.run.has_value()) EndLateOffer(records_, record, now);
  }
  records_.WriteLogs();
  if (records_.Retire(now)) forget_again_ = absl::InfinitePast();  // One more may be too many.
  ForgetOld(now);
  Advance();
  PlanAhead();
}

void JobLife::OnMessage(const std::string& worker, const v1::ConnectRequest& message) {
  // Hands a report to `note` with the record that it is about, if it is about the present run.
  const auto take = [&](const auto& report, auto&& note) {
    JobRecord* record = records_.FindRun(worker, report.job(), report.generation());
    if (record == nullptr || !IsOfRun(record->job.state, message)) return;
    const absl::Status can_be = CheckReport(record->job, *record->run, worker, message);
    if (can_be.ok()) return note(*record, report);
    End(*record, JobState::kFailed,
        absl::StrCat("worker ", worker, " reports what cannot be: ", can_be.message()));
  };
  switch (message.message_case()) {
    case v1::ConnectRequest::kFetching:
      return take(message.fetching(), [&](auto& record, auto& report) {
        if (NoteFetching(records_, record, worker, report))
          record.run->deadline = Now() + options_.starting_timeout;  // There is much to fetch.
      });
    case v1::ConnectRequest::kGraphNeeded:
      return take(message.graph_needed(), [&](auto& record, auto&) {
        if (record.run->SendsGraph(worker)) records_.Send(record, worker, GraphMessage(record.job));
      });
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
    case v1::ConnectRequest::kCheckpointAgreed:
      return take(message.checkpoint_agreed(), [&](auto& record, auto& report) {
        NoteAgreement(records_, record, worker, report);
      });
    case v1::ConnectRequest::kCheckpointWritten:
      return take(message.checkpoint_written(),
                  [&](auto& record, auto& report) { OnCheckpoint(record, worker, report); });
    case v1::ConnectRequest::kStepsSoFar:
      return take(message.steps_so_far(),
                  [&](auto& record, auto& report) { NoteSteps(records_, record, report); });
    case v1::ConnectRequest::kLogLines:
      return records_.NoteLog(worker, message.log_lines(), Now());
    case v1::ConnectRequest::kRunEnded:
      registry_->Ended(worker, message.run_ended().job(), message.run_ended().generation());
      return Advance();
    case v1::ConnectRequest::kLeave:
      registry_->NoteLeaving(worker);
      return Advance();
    case v1::ConnectRequest::kPathsChecked:
      return OnPathsChecked(worker, message.paths_checked());
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
  if (absl::Status status = record.run->Prepare(worker, preparation); !status.ok()) {
    const std::string why(status.message());
    if (!MayBeLoss(status.code())) return End(record, JobState::kFailed, why);
    return FailOrRestart(record, "workers disagree on where to resume", why);
  }
  for (const std::string& warning : preparation.warnings) record.job.Warn(warning);
  if (!record.run->IsPrepared()) return;
  const int64_t unwritten = record.unwritten.has_value() ? record.unwritten->manifest.step() : 0;
  records_.SendToAll(record, ConnectMessage(record.job, *record.run, unwritten));
}

void JobLife::OnConnected(JobRecord& record, const std::string& worker) {
  Job& job = record.job;
  Run& run = *record.run;
  if (!run.Connect(worker, SteadyNow())) return;
  record.unwritten.reset();
  job.metrics.total_steps = run.total_steps();
  record.start_took = SteadyNow() - run.begun();
  record.growth_pauses.NoteRun(options_.growth_pause, Now());
  if (!record.history.empty()) {
    record.history.DropAfter(run.first_step());
    record.write_steps = SteadyNow();  // With the transition: the store must not know them either.
  }
  const int64_t again = std::max<int64_t>(job.metrics.step - run.first_step(), 0);
  records_.Transition(record, JobState::kRunning,
                      GoesOn(job) ? absl::StrCat("goes on after step ", run.first_step(), "; ",
                                                 again, " steps are done again")
                                  : "");
  BeginMeasuring(record, SteadyNow());
  BeginLooking(record, Now());
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
  if (!record.changeover->leaves.empty()) {
    const std::string left =
        absl::StrCat("left ", record.changeover->leaves, " after step ", job.checkpoint_step);
    job.resume_from = checkpoint;
    record.least_devices = 0;
    return PutBack(record, AbortMessage(job.name(), job.generation, left), left);
  }
  if (record.changeover->room_for.has_value()) {
    const std::string why = absl::StrCat("preempted after step ", job.checkpoint_step, " for ",
                                         record.changeover->room_text);
    job.resume_from = checkpoint;
    ++job.preemptions;
    job.preempted = true;
    job.preempted_devices = static_cast<int32_t>(job.devices.size());
    record.least_devices = 0;
    records_.Note(job, EventKind::kPreempted, why);
    return PutBack(record, AbortMessage(job.name(), job.generation, why), why);
  }
  const std::string why =
      MayNotChangeTo(job, record.changeover->devices, Queue().state, options_.quotas);
  if (!why.empty()) return FailHold(records_, record, /*again=*/false, why);
  // Devices that were free when the plan was made may be others' now.
  if (absl::Status held = registry_->Allocate(job.name(), record.changeover->devices); !held.ok())
    return FailHold(records_, record, /*again=*/false, std::string(held.message()));
  Changeover next = *std::move(record.changeover);
  record.changeover.reset();
  if (!next.grows.empty()) NoteGrown(records_, record, next, Now());
  const v1::ConnectResponse abort =
      AbortMessage(job.name(), job.generation, "the job goes on under another plan");
  ++job.replans;
  records_.Note(job, EventKind::kPlanChanged,
                absl::StrCat("after step ", job.checkpoint_step, ", plan ", job.replans + 1));
  job.resume_from = checkpoint;
  job.devices = std::move(next.devices);
  Adopt(records_, record, std::move(next.plan));
  records_.Transition(record, JobState::kWaitingForDevices,
                      absl::StrCat("changing its plan after step ", job.checkpoint_step));
  record.settled_by = Now() + kRunsEndWithin;
  EndRun(record, abort, /*keep=*/job.devices);
  Advance();
}

}  // namespace stagewright
