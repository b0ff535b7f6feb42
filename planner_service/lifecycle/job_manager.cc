#include "planner_service/lifecycle/job_manager.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error_details.h"
#include "common/clock/steady_now.h"
#include "common/log/log.h"
#include "common/training/field_check.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/lifecycle/job_queue.h"
#include "planner_service/lifecycle/path_checks.h"
#include "planner_service/records/job_list.h"
#include "planner_service/records/page_token.h"
#include "planner_service/records/plan_check.h"
#include "planner_service/records/told_of.h"

namespace stagewright {
namespace {

constexpr absl::Duration kLongestReplan = absl::Hours(1);
constexpr size_t kDefaultPageSize = 50;
constexpr int kLargestPageSize = 1000;
constexpr size_t kMostWorkerEvents = 256;
// Between ticks, as they are to be, and the longest that counts in full.
constexpr absl::Duration kTickEvery = absl::Milliseconds(500);
constexpr absl::Duration kLongestPause = absl::Seconds(2);
// A planner that stands still again before so long was told of already.
constexpr absl::Duration kToldOfPause = absl::Seconds(10);

// What clients see: everything but the graph, which they sent.
v1::Job Shown(const Job& job) { return ToProto(job, GraphDetail::kNone); }

// With what was asked for, which can be.
absl::StatusOr<Job> JobOf(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(JobRequest request, FromProto(spec));
  RETURN_IF_ERROR(Check(request));
  Job job;
  SetSpec(spec, job);
  job.request = std::make_shared<const JobRequest>(std::move(request));
  return job;
}

// The number of a job that is known.
absl::StatusOr<int64_t> NumberOf(const JobLife& life, const std::string& name) {
  const int64_t number = JobNumber(name);
  if (life.records().Knows(number)) return number;
  return WithResource(absl::NotFoundError(absl::StrCat("no job \"", name, "\"")), name);
}

// A state that no job can be in would make a list that is empty whatever there is.
absl::Status CheckStates(const v1::ListJobsRequest& request) {
  for (int i = 0; i < request.states_size(); ++i) {
    const int state = request.states(i);
    if (state != v1::JOB_STATE_UNSPECIFIED && v1::JobState_IsValid(state)) continue;
    return WrongField("", absl::StrCat("states[", i, "]"), "must be a state of jobs, is ", state);
  }
  return absl::OkStatus();
}

// Null if it has ended.
const JobRecord* LiveOf(const JobLife& life, int64_t number) {
  const auto live = life.records().live().find(number);
  return live == life.records().live().end() ? nullptr : &live->second;
}

}  // namespace

// With what of it is as large as the graph, made before the lock is taken.
struct Submission {
  Submission(const v1::JobSpec& spec, const std::string& id, const v1::PlanBasis* basis,
             const ProfileStore& profiles)
      : job(JobOf(spec)), request_id(id), digest(id.empty() ? "" : DigestOf(spec)) {
    if (job.ok()) by_number = ByNumber(*job);
    if (basis == nullptr) return;
    plan.emplace(spec, *basis);
    known = profiles.Read();
  }

  absl::StatusOr<Job> job;
  std::optional<Job> by_number;    // The same, if its plan may go by number.
  std::string request_id, digest;  // Without an id there is no digest, which alone it is for.
  std::optional<PlanCheck> plan;
  absl::StatusOr<std::shared_ptr<const OperatorProfile>> known;  // To judge the plan by.
};

JobManager::JobManager(Store* store, ProfileStore* profiles, WorkerRegistry* registry,
                       PlanningPool* pool, JobManagerOptions options)
    : profiles_(profiles),
      registry_(registry),
      pool_(pool),
      options_(Watched(std::move(options))),
      life_(store, profiles, registry, options_,
            {[this](const Job& job, auto cluster, auto profile, auto context)
                 ABSL_NO_THREAD_SAFETY_ANALYSIS {  // Called by life_, under the lock.
                   return StartPlanner(job, std::move(cluster), std::move(profile),
                                       std::move(context));
                 },
             [this](const Job& job, auto cluster, auto profile,
                    auto context) ABSL_NO_THREAD_SAFETY_ANALYSIS {
               return StartAhead(job, std::move(cluster), std::move(profile), std::move(context));
             },
             [this](ReplanProblem problem)
                 ABSL_NO_THREAD_SAFETY_ANALYSIS { return StartReplanner(std::move(problem)); }}),
      watches_([this](int64_t job) { return CopyOf(absl::StrCat("jobs/", job)); }) {}

JobManagerOptions JobManager::Watched(JobManagerOptions options) {
  options.on_change = [this, told = std::move(options.on_change)](const Job& job) {
    if (told) told(job);
    watches_.Changed(job.number);
  };
  // Called under the lock.
  options.on_event = [this, told = std::move(options.on_event)](const Event& event)
                         ABSL_NO_THREAD_SAFETY_ANALYSIS {
                           if (told) told(event);
                           if (IsOfWorker(event))
                             Append(event, kMostWorkerEvents, /*keep=*/0, worker_events_);
                         };
  return options;
}

absl::StatusOr<Job> JobManager::CopyOf(const std::string& name) const {
  std::function<absl::StatusOr<Job>()> read;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const int64_t number, NumberOf(life_, name));
    const JobRecord* live = LiveOf(life_, number);
    if (live != nullptr && ShownJob(*live).graph != nullptr) return ShownJob(*live);
    read = life_.store().ReaderOf(number);
  }
  absl::StatusOr<Job> whole = read();
  if (whole.ok()) return whole;
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(NumberOf(life_, name).status());  // It may have been deleted meanwhile.
  return ToldOfRead(whole.status());
}

void JobManager::NoteWorker(EventKind kind, const std::string& worker, const std::string& message) {
  Event event;
  event.first = event.last = absl::Now();
  event.kind = kind;
  event.worker = worker;
  event.message = message;
  LogEvent(event);
  options_.on_event(event);
}

JobManager::~JobManager() {
  absl::MutexLock lock(&mutex_);
  life_.Freeze();
  mutex_.Await(absl::Condition(
      +[](int* planning) { return *planning == 0; }, &planning_));
}

void JobManager::CountSearch(const JobRequest& request, const absl::Status& status,
                             absl::Duration took) const {
  if (!options_.on_planned) return;
  options_.on_planned(request.planner.empty() ? options_.default_planner : request.planner,
                      status.ok() ? "found" : absl::StatusCodeToString(status.code()),
                      absl::ToDoubleSeconds(took));
}

absl::Status JobManager::StartPlanner(const Job& job, std::shared_ptr<const Cluster> cluster,
                                      std::shared_ptr<const OperatorProfile> profile,
                                      std::shared_ptr<SearchContext> context) {
  auto plan = [this, number = job.number, generation = job.generation, request = job.request,
               cluster = std::move(cluster), profile = std::move(profile),
               context = std::move(context)] {
    absl::StatusOr<PlannedJob> planned = absl::UnknownError("not planned");
    std::shared_ptr<const JobPlan> kept;
    const absl::Time start = SteadyNow();
    auto found = PlanJobTightly(*request, *cluster, *profile, options_.default_planner, *context);
    CountSearch(*request, found.status(), SteadyNow() - start);
    if (found.ok()) {
      planned = ToProto(*found, *cluster);
      kept = std::make_shared<const JobPlan>(*std::move(found));
    } else {
      planned = found.status();
    }
    PlanSource source(*cluster, *profile);
    absl::MutexLock lock(&mutex_);
    CatchUp(SteadyNow());
    --planning_;
    if (kept != nullptr) life_.KeepPlan(number, std::move(source), std::move(kept));
    life_.OnPlanned(number, generation, std::move(planned));
  };
  RETURN_IF_ERROR(pool_->Submit({AccountOf(job).Text(), std::move(plan), {}, {}}));
  AskForPaths(life_.records(), job, registry_);
  ++planning_;
  return absl::OkStatus();
}

absl::Status JobManager::StartAhead(const Job& job, std::shared_ptr<const Cluster> cluster,
                                    std::shared_ptr<const OperatorProfile> profile,
                                    std::shared_ptr<SearchContext> context) {
  RETURN_IF_ERROR(ahead_pool_.Submit([this, number = job.number, request = job.request,
                                      cluster = std::move(cluster), profile = std::move(profile),
                                      context = std::move(context)] {
    const absl::Time start = SteadyNow();
    auto plan = PlanJobTightly(*request, *cluster, *profile, options_.default_planner, *context);
    const absl::Duration took = SteadyNow() - start;
    const absl::Status status = plan.status();
    auto kept = plan.ok() ? std::make_shared<const JobPlan>(*std::move(plan)) : nullptr;
    PlanSource source(*cluster, *profile);
    {
      absl::MutexLock lock(&mutex_);
      --planning_;
      life_.OnPlannedAhead(number, context, std::move(source), std::move(kept));
    }
    CountSearch(*request, status, took);
  }));
  ++planning_;
  return absl::OkStatus();
}

absl::Status JobManager::StartReplanner(ReplanProblem given) {
  const auto problem = std::make_shared<const ReplanProblem>(std::move(given));
  auto plan = [this, problem] {
    auto result = PlanAnew(*problem, options_.default_planner);
    absl::MutexLock lock(&mutex_);
    CatchUp(SteadyNow());
    --planning_;
    life_.EndGrowth(*problem, std::move(result));
  };
  RETURN_IF_ERROR(pool_->Submit({problem->account, std::move(plan), {}, {}}));
  ++planning_;
  return absl::OkStatus();
}

absl::Status JobManager::Recover() {
  profiles_->Read().IgnoreError();  // So that no plan waits for the store. They are a help only.
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(life_.Recover());
  // Where there were jobs, there were workers, which come back.
  if (life_.records().live().size() + life_.records().ended().size() > 0)
    workers_back_by_ = SteadyNow() + options_.recovery_timeout;
  return absl::OkStatus();
}

std::vector<std::string> JobManager::notes() const {
  absl::MutexLock lock(&mutex_);
  return life_.notes();
}

absl::Status JobManager::Place(Submission& submission) const {
  // The answer to what is known is the job that there is, whatever is connected now.
  absl::StatusOr<Job>& job = submission.job;
  const bool planned = job.ok() && PlannedDevices(*job->request) > 0;
  if (life_.Knows(submission.request_id) || !(submission.plan.has_value() || planned))
    return job.status();
  const std::vector<RegisteredDevice> devices = registry_->Devices(/*free_only=*/false);
  const absl::Duration come_back = workers_back_by_ - std::max(SteadyNow(), ticked_);
  const auto wait_for = [&, &events = worker_events_](const std::vector<std::string>& wanted) {
    return MayComeBack(wanted, devices, events) ? come_back : absl::ZeroDuration();
  };
  if (submission.plan.has_value()) {
    const PlanCheck& plan = *submission.plan;
    RETURN_IF_ERROR(submission.known.status());
    RETURN_IF_ERROR(Lacking(plan.Holds(devices, registry_->Links(), **submission.known),
                            wait_for(plan.devices())));
  }
  if (!planned) return job.status();
  const std::vector<std::string>& named = job->request->named_devices;
  const absl::Duration wait = named.empty() ? come_back : wait_for(named);
  if (!submission.by_number || !GoByNumber(named, devices, wait))
    return Lacking(CheckDevices(*job->request, devices), wait);
  job = *std::move(submission.by_number);
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> JobManager::Submit(const v1::JobSpec& spec, const std::string& request_id,
                                           const std::string& client, const v1::PlanBasis* basis) {
  Submission submission(spec, request_id, basis, *profiles_);
  std::string name;
  std::optional<Job> submitted;
  {
    absl::MutexLock lock(&mutex_);
    CatchUp(SteadyNow());
    RETURN_IF_ERROR(Place(submission));
    ASSIGN_OR_RETURN(const int64_t number, life_.Submit(*std::move(submission.job), request_id,
                                                        submission.digest, client));
    name = absl::StrCat("jobs/", number);
    if (const JobRecord* live = LiveOf(life_, number)) submitted = ShownJob(*live);
  }
  if (submitted.has_value()) return Shown(*submitted);
  ASSIGN_OR_RETURN(const Job ended, CopyOf(name));
  return Shown(ended);
}

absl::StatusOr<v1::Job> JobManager::Get(const std::string& name) const {
  ASSIGN_OR_RETURN(const Job job, CopyOf(name));
  return ToProto(job, GraphDetail::kNames);
}

absl::StatusOr<v1::ListJobsResponse> JobManager::List(const v1::ListJobsRequest& request) const {
  const int page_size = request.page_size();
  RETURN_IF_ERROR(CheckNotNegative("", "page_size", int64_t{page_size}));
  RETURN_IF_ERROR(CheckStates(request));
  const size_t limit = page_size == 0 ? kDefaultPageSize
                                      : static_cast<size_t>(std::min(page_size, kLargestPageSize));
  ASSIGN_OR_RETURN(const int64_t before, NumberOfPage(request));
  std::vector<JobRow> page;
  v1::ListJobsResponse response;
  const JobStore* store = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    store = &life_.store();
    VisitAskedFor(life_.records(), before, request, [&](int64_t number, JobRow row) {
      // A job's number, not a place in the list: what comes or goes meanwhile shifts nothing.
      if (page.size() == limit) {
        response.set_next_page_token(PageToken(number + 1, request));
        return false;
      }
      page.push_back(std::move(row));
      return true;
    });
  }
  absl::Status silent;  // Why the store is not asked any more: each question would take time.
  for (const JobRow& row : page) {
    if (row.live.has_value()) {
      *response.add_jobs() = Shown(*row.live);
      continue;
    }
    const absl::StatusOr<Job> ended =
        silent.ok() ? store->ReadEnded(row.ended.number) : absl::StatusOr<Job>(silent);
    if (absl::IsNotFound(ended.status())) continue;  // It was deleted meanwhile.
    if (!ended.ok() && !absl::IsDataLoss(ended.status())) silent = ended.status();
    *response.add_jobs() = ended.ok() ? Shown(*ended) : Unread(row.ended, ended.status());
  }
  return response;
}

absl::StatusOr<v1::Job> JobManager::Cancel(const std::string& name, const std::string& request_id) {
  std::optional<Job> cancelled;
  {
    absl::MutexLock lock(&mutex_);
    CatchUp(SteadyNow());
    ASSIGN_OR_RETURN(const int64_t number, NumberOf(life_, name));
    RETURN_IF_ERROR(life_.Cancel(number, request_id));
    if (const JobRecord* live = LiveOf(life_, number)) cancelled = ShownJob(*live);
  }
  // It is cancelled also if it was deleted meanwhile, or what only the store has cannot be read.
  absl::StatusOr<Job> whole = CopyOf(name);
  if (!whole.ok() && cancelled.has_value()) return Shown(*cancelled);
  RETURN_IF_ERROR(whole.status());
  return Shown(*whole);
}

absl::Status JobManager::Delete(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const int64_t number, NumberOf(life_, name));
  return life_.Delete(number);
}

absl::Status JobManager::Validate(const v1::JobSpec& spec, const std::string& request_id,
                                  const v1::PlanBasis* basis) const {
  Submission submission(spec, request_id, basis, *profiles_);
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Place(submission));
  return life_.MaySubmit(*submission.job, request_id, submission.digest);
}

absl::StatusOr<ReplanProblem> JobManager::BeginReplan(const v1::ReplanJobRequest& request) {
  if (request.time_limit_ns() < 0 || absl::Nanoseconds(request.time_limit_ns()) > kLongestReplan)
    return WrongField("", "time_limit_ns", "must be from 0 to an hour");
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const int64_t number, NumberOf(life_, request.name()));
  ASSIGN_OR_RETURN(ReplanProblem problem,
                   life_.BeginReplan(number, absl::Nanoseconds(request.time_limit_ns())));
  ++planning_;
  return problem;
}

void JobManager::Replan(const v1::ReplanJobRequest& request,
                        std::function<void(absl::StatusOr<v1::ReplanJobResponse>)> done) {
  auto begun = BeginReplan(request);
  if (!begun.ok()) return done(begun.status());
  const auto problem = std::make_shared<const ReplanProblem>(*std::move(begun));
  const auto end = [this, problem, done = std::move(done),
                    apply = request.apply()](absl::StatusOr<ReplanResult> result) {
    absl::StatusOr<v1::ReplanJobResponse> response = absl::UnknownError("not planned");
    {
      absl::MutexLock lock(&mutex_);
      CatchUp(SteadyNow());
      --planning_;
      response = life_.EndReplan(*problem, std::move(result), apply);
    }
    done(std::move(response));
  };
  // In a turn of its own: whoever asks may give it an hour, for which the account's jobs would
  // wait.
  const absl::Status queued =
      pool_->Submit({absl::StrCat("replan for ", problem->account),
                     [this, problem, end] { end(PlanAnew(*problem, options_.default_planner)); },
                     {},
                     {}});
  if (!queued.ok()) end(queued);
}

absl::StatusOr<v1::Worker> JobManager::SetAvailability(
    const v1::SetWorkerAvailabilityRequest& request) {
  switch (request.availability()) {
    case v1::WORKER_AVAILABILITY_OPEN:
    case v1::WORKER_AVAILABILITY_CORDONED:
    case v1::WORKER_AVAILABILITY_DRAINING:
      break;
    default:
      return WrongField("", "availability", "must be OPEN, CORDONED or DRAINING");
  }
  absl::MutexLock lock(&mutex_);
  CatchUp(SteadyNow());
  return life_.SetAvailability(request.name(), request.availability());
}

absl::StatusOr<v1::GetJobTraceResponse> JobManager::Trace(const std::string& name) const {
  ASSIGN_OR_RETURN(v1::GetJobTraceResponse trace, RecordedTrace(name));
  std::stable_sort(trace.mutable_measured()->begin(), trace.mutable_measured()->end(),
                   [](const v1::TraceEvent& a, const v1::TraceEvent& b) {
                     return std::tuple(a.step(), a.start_ns(), a.device()) <
                            std::tuple(b.step(), b.start_ns(), b.device());
                   });
  return trace;
}

absl::StatusOr<v1::GetJobTraceResponse> JobManager::RecordedTrace(const std::string& name) const {
  const JobStore* store = nullptr;
  int64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(number, NumberOf(life_, name));
    const JobRecord* live = LiveOf(life_, number);
    if (live != nullptr && !live->trace.measured().empty()) return live->trace;
    store = &life_.store();
  }
  auto stored = store->ReadTrace(number);
  if (stored.ok() && !stored->measured().empty()) return stored;
  return absl::FailedPreconditionError(absl::StrCat(name, " has no recorded steps yet"));
}

absl::StatusOr<v1::ListJobLogsResponse> JobManager::Logs(const std::string& name,
                                                         int64_t after_position) const {
  RETURN_IF_ERROR(CheckNotNegative("", "after_position", after_position));
  absl::StatusOr<v1::ListJobLogsResponse> log = v1::ListJobLogsResponse();
  const JobStore* store = nullptr;
  int64_t number = 0;
  JobState state = {};
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(number, NumberOf(life_, name));
    const JobRecord* live = LiveOf(life_, number);
    state = live == nullptr ? life_.records().StateOf(number) : ShownJob(*live).state;
    if (live != nullptr) log = live->log.ToProto(after_position);
    if (live == nullptr) store = &life_.store();
  }
  if (store != nullptr) log = store->ReadLog(number, after_position);
  if (!log.ok()) return ToldOfRead(log.status());
  log->set_state(ToProto(state));
  return log;
}

absl::StatusOr<v1::ListJobStepsResponse> JobManager::Steps(const std::string& name,
                                                           int64_t after_step) const {
  RETURN_IF_ERROR(CheckNotNegative("", "after_step", after_step));
  const JobStore* store = nullptr;
  int64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(number, NumberOf(life_, name));
    const JobRecord* live = LiveOf(life_, number);
    if (live != nullptr && !live->history.empty()) return live->history.ToProto(after_step);
    store = &life_.store();
  }
  const absl::StatusOr<StepHistory> steps = store->ReadSteps(number);
  if (!steps.ok()) return ToldOfRead(steps.status());
  return steps->ToProto(after_step);
}

absl::StatusOr<int64_t> JobManager::Watch(const std::string& name, JobWatches::Watcher watcher,
                                          int64_t after_version) {
  RETURN_IF_ERROR(CheckNotNegative("", "after_version", after_version));
  int64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(number, NumberOf(life_, name));
    const JobRecord* live = LiveOf(life_, number);
    const int64_t version =
        live == nullptr ? life_.records().ended().Find(number)->version : ShownJob(*live).version;
    if (after_version > version) {
      return WithResource(
          WithReason(absl::OutOfRangeError(absl::StrCat(
                         "after_version: ", name, " is at version ", version, ", not yet at ",
                         after_version, ": the planner has an older state; watch from 0")),
                     "WATCH_VERSION_UNKNOWN"),
          name);
    }
  }
  return watches_.Add(number, std::move(watcher));
}

void JobManager::Unwatch(int64_t id) { watches_.Remove(id); }

v1::ListWorkersResponse JobManager::Workers(bool with_events) const {
  std::vector<v1::Worker> workers;
  std::vector<Event> events;
  if (with_events) {  // Workers come and go under the lock, and leave their events under it.
    absl::MutexLock lock(&mutex_);
    workers = registry_->List();
    events = worker_events_;
  } else {
    workers = registry_->List();
  }
  v1::ListWorkersResponse response;
  for (v1::Worker& worker : workers) *response.add_workers() = std::move(worker);
  for (const Event& event : events) *response.add_events() = ToProto(event);
  return response;
}

absl::Status JobManager::CheckWritable() const {
  absl::MutexLock lock(&mutex_);
  return Annotate(ToldOf(life_.records().refusal()), "the state cannot be written");
}

void JobManager::Suspend() {
  absl::MutexLock lock(&mutex_);
  life_.Suspend();
}

absl::StatusOr<int64_t> JobManager::Register(const v1::Register& message,
                                             const WorkerRegistry::Sink& sink) {
  // Under the lock, so that devices of a job that runs on cannot be given to another one first.
  absl::MutexLock lock(&mutex_);
  CatchUp(SteadyNow());
  auto session = life_.Register(message, sink);
  if (session.ok())
    NoteWorker(EventKind::kWorkerConnected, message.worker(),
               absl::StrCat(message.devices_size(), " devices, version ", message.version()));
  return session;
}

void JobManager::NoteLost(const std::string& worker, const std::string& why, bool silent) {
  NoteWorker(EventKind::kWorkerLost, worker, why);
  life_.OnLost(worker, why, silent);
}

bool JobManager::OnLost(const std::string& worker, int64_t session, const std::string& why) {
  // Under the lock, so that the loss comes before whatever the worker's next session does.
  absl::MutexLock lock(&mutex_);
  CatchUp(SteadyNow());
  if (!registry_->Unregister(worker, session)) return false;
  NoteLost(worker, why, /*silent=*/false);
  return true;
}

void JobManager::OnMessage(const std::string& worker, const v1::ConnectRequest& message) {
  absl::MutexLock lock(&mutex_);
  CatchUp(SteadyNow());
  life_.OnMessage(worker, message);
}

void JobManager::CatchUp(absl::Time now) {
  if (ticked_ == absl::InfinitePast() || now - ticked_ <= kLongestPause) return;
  const absl::Time since = std::exchange(ticked_, now);
  const absl::Duration stood_still = now - since - kTickEvery;
  if (since - std::exchange(stood_still_, now) > kToldOfPause) {
    Log(LogLevel::kWarning, "the planner stood still: it did not run, or waited for its store",
        {{"seconds", absl::ToInt64Seconds(stood_still)}});
  }
  registry_->Forgive(stood_still, now);
  life_.Forgive(stood_still, now);
  workers_back_by_ += stood_still;
}

void JobManager::Tick(absl::Time now) {
  {
    absl::MutexLock lock(&mutex_);
    CatchUp(now);
    // Another thread may have caught up since, while this one waited for the lock.
    ticked_ = std::max(ticked_, now);
  }
  const absl::Time deadline = now - options_.worker_timeout;
  for (const auto& [worker, session] : registry_->Silent(deadline)) {
    // It may be heard of while this waits for the lock.
    absl::MutexLock lock(&mutex_);
    if (!registry_->UnregisterSilent(worker, session, deadline)) continue;
    NoteLost(worker,
             absl::StrCat("no heartbeat for ", absl::FormatDuration(options_.worker_timeout)),
             /*silent=*/true);
  }
  absl::MutexLock lock(&mutex_);
  life_.Tick(now);
}

}  // namespace stagewright
