#include "planner_service/lifecycle/job_manager.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error_details.h"
#include "common/log/log.h"
#include "common/training/field_check.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/lifecycle/path_checks.h"
#include "planner_service/records/page_token.h"
#include "planner_service/records/told_of.h"
#include "planner_service/runs/worker_messages.h"
#include "planner_service/wire/plan_basis.h"

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

bool IsAskedFor(const Job& job, const v1::ListJobsRequest& request) {
  const auto& states = request.states();
  const auto is = [](const std::string& asked, const std::string& actual) {
    return asked.empty() || asked == actual;
  };
  return is(request.owner(), job.spec->owner()) && is(request.tenant(), job.spec->tenant()) &&
         (states.empty() ||
          std::find(states.begin(), states.end(), ToProto(job.state)) != states.end()) &&
         absl::StrContains(job.spec->display_name(), request.display_name_contains());
}

absl::StatusOr<const JobRecord*> RecordOf(const JobLife& life, const std::string& name) {
  const auto it = life.records().find(JobNumber(name));
  if (it == life.records().end())
    return WithResource(absl::NotFoundError(absl::StrCat("no job \"", name, "\"")), name);
  return &it->second;
}

}  // namespace

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
      watches_([this](int64_t job) {
        auto copy = CopyOf(absl::StrCat("jobs/", job));
        return copy.ok() ? std::optional<Job>(*std::move(copy)) : std::nullopt;
      }) {}

JobManagerOptions JobManager::Watched(JobManagerOptions options) {
  options.on_change = [this, told = std::move(options.on_change)](const Job& job) {
    if (told) told(job);
    watches_.Changed(job.number);
  };
  return options;
}

absl::StatusOr<Job> JobManager::CopyOf(const std::string& name) const {
  std::function<absl::StatusOr<Job>()> read;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const JobRecord* record, RecordOf(life_, name));
    const Job& job = ShownJob(*record);
    if (job.graph != nullptr) return job;
    read = life_.store().ReaderOf(job.number);
  }
  absl::StatusOr<Job> whole = read();
  if (whole.ok()) return whole;
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(RecordOf(life_, name).status());  // It may have been deleted meanwhile.
  return ToldOfRead(whole.status());
}

void JobManager::NoteWorker(EventKind kind, const std::string& worker, const std::string& message) {
  Event event;
  event.first = event.last = absl::Now();
  event.kind = kind;
  event.worker = worker;
  event.message = message;
  LogEvent(event);
  if (options_.on_event) options_.on_event(event);
  Append(std::move(event), kMostWorkerEvents, /*keep=*/0, worker_events_);
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
  RETURN_IF_ERROR(pool_->Submit([this, number = job.number, generation = job.generation,
                                 request = job.request, cluster = std::move(cluster),
                                 profile = std::move(profile), context = std::move(context)] {
    absl::StatusOr<PlannedJob> planned = absl::UnknownError("not planned");
    std::shared_ptr<const JobPlan> kept;
    const absl::Time start = absl::Now();
    auto plan = PlanJobTightly(*request, *cluster, *profile, options_.default_planner, *context);
    CountSearch(*request, plan.status(), absl::Now() - start);
    if (plan.ok()) {
      planned = ToProto(*plan, *cluster);
      kept = std::make_shared<const JobPlan>(*std::move(plan));
    } else {
      planned = plan.status();
    }
    PlanSource source(*cluster, *profile);
    absl::MutexLock lock(&mutex_);
    --planning_;
    if (kept != nullptr) life_.KeepPlan(number, std::move(source), std::move(kept));
    life_.OnPlanned(number, generation, std::move(planned));
  }));
  for (const std::string& worker : WorkersToAsk(job)) registry_->Send(worker, PathsMessage(job));
  ++planning_;
  return absl::OkStatus();
}

absl::Status JobManager::StartAhead(const Job& job, std::shared_ptr<const Cluster> cluster,
                                    std::shared_ptr<const OperatorProfile> profile,
                                    std::shared_ptr<SearchContext> context) {
  RETURN_IF_ERROR(ahead_pool_.Submit([this, number = job.number, request = job.request,
                                      cluster = std::move(cluster), profile = std::move(profile),
                                      context = std::move(context)] {
    const absl::Time start = absl::Now();
    auto plan = PlanJobTightly(*request, *cluster, *profile, options_.default_planner, *context);
    const absl::Duration took = absl::Now() - start;
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

absl::Status JobManager::StartReplanner(ReplanProblem problem) {
  RETURN_IF_ERROR(
      pool_->Submit([this, problem = std::make_shared<const ReplanProblem>(std::move(problem))] {
        auto result = PlanAnew(*problem, options_.default_planner);
        absl::MutexLock lock(&mutex_);
        --planning_;
        life_.EndGrowth(*problem, std::move(result));
      }));
  ++planning_;
  return absl::OkStatus();
}

absl::Status JobManager::Recover() {
  absl::MutexLock lock(&mutex_);
  return life_.Recover();
}

std::vector<std::string> JobManager::notes() const {
  absl::MutexLock lock(&mutex_);
  return life_.notes();
}

absl::StatusOr<v1::Job> JobManager::Submit(const v1::JobSpec& spec, const std::string& request_id,
                                           const std::string& client) {
  ASSIGN_OR_RETURN(JobRequest request, FromProto(spec));
  RETURN_IF_ERROR(Check(request));
  Job submitted;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const Job* job, life_.Submit(spec, std::move(request), request_id, client));
    submitted = *job;
  }
  return Shown(submitted);
}

absl::StatusOr<v1::Job> JobManager::Get(const std::string& name) const {
  ASSIGN_OR_RETURN(const Job job, CopyOf(name));
  return ToProto(job, GraphDetail::kNames);
}

absl::StatusOr<v1::ListJobsResponse> JobManager::List(const v1::ListJobsRequest& request) const {
  const int page_size = request.page_size();
  if (page_size < 0) return WrongField("", "page_size", "must not be negative");
  const size_t limit = page_size == 0 ? kDefaultPageSize
                                      : static_cast<size_t>(std::min(page_size, kLargestPageSize));
  ASSIGN_OR_RETURN(const int64_t before, NumberOfPage(request));
  std::vector<Job> page;
  v1::ListJobsResponse response;
  {
    absl::MutexLock lock(&mutex_);
    const std::map<int64_t, JobRecord>& records = life_.records();
    for (auto it = records.lower_bound(before); it != records.begin();) {
      --it;
      const Job& job = ShownJob(it->second);
      if (!IsAskedFor(job, request)) continue;
      if (page.size() == limit) {
        // A job's number, not a place in the list: what comes or goes meanwhile shifts nothing.
        response.set_next_page_token(PageToken(it->first + 1, request));
        break;
      }
      page.push_back(job);
      page.back().plan.reset();
      page.back().sequential_plan.reset();
    }
  }
  for (const Job& job : page) *response.add_jobs() = Shown(job);
  return response;
}

absl::StatusOr<v1::Job> JobManager::Cancel(const std::string& name, const std::string& request_id) {
  Job cancelled;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const JobRecord* record, RecordOf(life_, name));
    RETURN_IF_ERROR(life_.Cancel(record->job.number, request_id));
    cancelled = ShownJob(*record);
  }
  // It is cancelled also if it was deleted meanwhile, or what only the store has cannot be read.
  absl::StatusOr<Job> whole = CopyOf(name);
  return Shown(whole.ok() ? *whole : cancelled);
}

absl::Status JobManager::Delete(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const JobRecord* record, RecordOf(life_, name));
  return life_.Delete(record->job.number);
}

absl::Status JobManager::Validate(const v1::JobSpec& spec, const std::string& request_id) const {
  ASSIGN_OR_RETURN(const JobRequest request, FromProto(spec));
  RETURN_IF_ERROR(Check(request));
  absl::MutexLock lock(&mutex_);
  return life_.MaySubmit(spec, request_id);
}

absl::Status JobManager::CheckBasis(const v1::JobSpec& spec, const v1::PlanBasis& basis,
                                    const std::string& request_id) const {
  {
    absl::MutexLock lock(&mutex_);
    // Its answer is the job that there is, or that the id was for something else.
    if (life_.Knows(request_id)) return absl::OkStatus();
  }
  v1::PlanningProblem problem;
  *problem.mutable_graph() = spec.graph();
  problem.set_mini_batch(spec.mini_batch());
  problem.set_optimizer(spec.optimizer().kind());
  problem.set_precision(spec.precision());
  std::vector<v1::BasisDevice> devices;
  for (const RegisteredDevice& registered : registry_->Devices(/*free_only=*/false)) {
    v1::BasisDevice& device = devices.emplace_back();
    device.set_name(registered.QualifiedName());
    device.set_kind(registered.kind.name());
    device.set_memory_bytes(registered.device.memory_bytes());
  }
  v1::PlanBasis now = BasisOf(problem, std::move(devices));
  ASSIGN_OR_RETURN(const OperatorProfile known, profiles_->Read());
  SetProfiles(known, now);
  return stagewright::CheckBasis(basis, now);
}

absl::StatusOr<ReplanProblem> JobManager::BeginReplan(const v1::ReplanJobRequest& request) {
  if (request.time_limit_ns() < 0 || absl::Nanoseconds(request.time_limit_ns()) > kLongestReplan)
    return WrongField("", "time_limit_ns", "must be from 0 to an hour");
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const JobRecord* record, RecordOf(life_, request.name()));
  const int64_t number = record->job.number;
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
      --planning_;
      response = life_.EndReplan(*problem, std::move(result), apply);
    }
    done(std::move(response));
  };
  const absl::Status queued =
      pool_->Submit([this, problem, end] { end(PlanAnew(*problem, options_.default_planner)); });
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
  Job ended;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const JobRecord* record, RecordOf(life_, name));
    if (!record->trace.measured().empty()) return record->trace;
    store = &life_.store();
    ended = record->job;
  }
  auto stored = store->ReadTrace(ended);
  if (stored.ok() && !stored->measured().empty()) return stored;
  return absl::FailedPreconditionError(absl::StrCat(name, " has no recorded steps yet"));
}

absl::StatusOr<v1::ListJobStepsResponse> JobManager::Steps(const std::string& name,
                                                           int64_t after_step) const {
  if (after_step < 0) return WrongField("", "after_step", "must not be negative");
  const JobStore* store = nullptr;
  Job ended;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const JobRecord* record, RecordOf(life_, name));
    if (!record->history.empty()) return record->history.ToProto(after_step);
    store = &life_.store();
    ended = record->job;
  }
  const absl::StatusOr<StepHistory> steps = store->ReadSteps(ended);
  if (!steps.ok()) return ToldOfRead(steps.status());
  return steps->ToProto(after_step);
}

absl::StatusOr<int64_t> JobManager::Watch(const std::string& name, JobWatches::Watcher watcher,
                                          int64_t after_version) {
  int64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const JobRecord* record, RecordOf(life_, name));
    number = record->job.number;
    const int64_t version = ShownJob(*record).version;
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

std::vector<Event> JobManager::WorkerEvents() const {
  absl::MutexLock lock(&mutex_);
  return worker_events_;
}

absl::Status JobManager::CheckWritable() const {
  absl::MutexLock lock(&mutex_);
  return life_.CheckWritable();
}

void JobManager::Suspend() {
  absl::MutexLock lock(&mutex_);
  life_.Suspend();
}

absl::StatusOr<int64_t> JobManager::Register(const v1::Register& message,
                                             const WorkerRegistry::Sink& sink) {
  // Under the lock, so that devices of a job that runs on cannot be given to another one first.
  absl::MutexLock lock(&mutex_);
  CatchUp(absl::Now());
  auto session = life_.Register(message, sink);
  if (session.ok())
    NoteWorker(EventKind::kWorkerConnected, message.worker(),
               absl::StrCat(message.devices_size(), " devices, version ", message.version()));
  return session;
}

bool JobManager::Lose(const std::string& worker, int64_t session, const std::string& why,
                      bool silent) {
  // Under the lock, so that the loss comes before whatever the worker's next session does.
  if (!registry_->Unregister(worker, session)) return false;
  NoteWorker(EventKind::kWorkerLost, worker, why);
  life_.OnLost(worker, why, silent);
  return true;
}

bool JobManager::OnLost(const std::string& worker, int64_t session, const std::string& why) {
  absl::MutexLock lock(&mutex_);
  CatchUp(absl::Now());
  return Lose(worker, session, why, /*silent=*/false);
}

void JobManager::OnMessage(const std::string& worker, const v1::ConnectRequest& message) {
  absl::MutexLock lock(&mutex_);
  CatchUp(absl::Now());
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
}

void JobManager::Tick(absl::Time now) {
  {
    absl::MutexLock lock(&mutex_);
    CatchUp(now);
    // Another thread may have caught up since, while this one waited for the lock.
    ticked_ = std::max(ticked_, now);
  }
  for (const auto& [worker, session] : registry_->Silent(now - options_.worker_timeout)) {
    absl::MutexLock lock(&mutex_);
    Lose(worker, session,
         absl::StrCat("no heartbeat for ", absl::FormatDuration(options_.worker_timeout)),
         /*silent=*/true);
  }
  absl::MutexLock lock(&mutex_);
  life_.Tick(now);
}

}  // namespace stagewright
