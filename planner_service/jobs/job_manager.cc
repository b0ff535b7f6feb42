#include "planner_service/jobs/job_manager.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "planner_service/jobs/spec_check.h"

namespace stagewright {
namespace {

constexpr int kDefaultPageSize = 50;
constexpr int kLargestPageSize = 1000;
constexpr int64_t kVersionsPerRestart = int64_t{1} << 32;

std::string JobKey(int64_t number) { return absl::StrFormat("jobs/%012d", number); }
std::string JobName(int64_t number) { return absl::StrCat("jobs/", number); }

void SetNow(google::protobuf::Timestamp* out) {
  const int64_t now = absl::GetCurrentTimeNanos();
  out->set_seconds(now / 1'000'000'000);
  out->set_nanos(static_cast<int32_t>(now % 1'000'000'000));
}

// What clients see: everything but the graph, which they sent.
v1::Job WithoutGraph(const v1::Job& job) {
  v1::Job copy = job;
  copy.mutable_spec()->clear_graph();
  return copy;
}

// The same for what changes often: the graph, which may be large, is set aside instead of copied.
v1::Job Snapshot(v1::Job& job) {
  v1::Graph* graph = job.mutable_spec()->release_graph();
  v1::Job copy = job;
  if (graph != nullptr) job.mutable_spec()->set_allocated_graph(graph);
  return copy;
}

// The same with the names of the graph's nodes, for views of the plan.
v1::Job WithNames(const v1::Job& job) {
  v1::Job copy = WithoutGraph(job);
  v1::Graph* names = copy.mutable_spec()->mutable_graph();
  names->set_name(job.spec().graph().name());
  for (const v1::Node& node : job.spec().graph().nodes()) {
    v1::Node* out = names->add_nodes();
    out->set_name(node.name());
    out->set_module(node.module());
  }
  return copy;
}

absl::Status NoSuchJob(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("no job \"", name, "\""));
}

}  // namespace

int64_t JobNumber(absl::string_view name) {
  int64_t number = -1;
  return absl::ConsumePrefix(&name, "jobs/") && absl::SimpleAtoi(name, &number) ? number : -1;
}

JobManager::JobManager(Store* store, WorkerRegistry* registry, PlanningPool* pool,
                       JobManagerOptions options)
    : store_(store), registry_(registry), pool_(pool), options_(std::move(options)) {}

JobManager::~JobManager() {
  absl::MutexLock lock(&mutex_);
  suspended_ = true;
  for (auto& [number, record] : jobs_) {
    if (record.planning != nullptr) record.planning->Cancel();
  }
  mutex_.Await(absl::Condition(
      +[](int* planning) { return *planning == 0; }, &planning_));
}

void JobManager::Suspend() {
  absl::MutexLock lock(&mutex_);
  suspended_ = true;
  for (auto& [number, record] : jobs_) WriteSteps(record);
}

absl::Status JobManager::Recover() {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(auto entries, store_->Scan("jobs/"));
  for (const auto& [key, value] : entries) {
    v1::Job job;
    if (!job.ParseFromString(value))
      return absl::DataLossError(absl::StrCat("store: entry ", key, " is damaged"));
    const int64_t number = JobNumber(job.name());
    if (number < 0)
      return absl::DataLossError(absl::StrCat("store: entry ", key, " has no job name"));
    next_job_ = std::max(next_job_, number + 1);
    Record& record = jobs_[number];
    record.job = std::move(job);
    if (options_.on_change) options_.on_change(record.job);
    if (IsTerminal(record.job.state())) continue;
    RETURN_IF_ERROR(ReadSteps(record));
    // Progress is not stored, so the version may have been further on.
    record.job.set_version(record.job.version() + kVersionsPerRestart);
    if (record.job.state() != v1::JOB_STATE_RUNNING &&
        record.job.state() != v1::JOB_STATE_RECOVERING) {
      Transition(record, v1::JOB_STATE_PENDING, "the planner was restarted");
      continue;
    }
    // Workers run on without us; those that are back in time carry on under the same generation.
    for (int i = 0; i < record.job.devices_size(); ++i) {
      const std::string worker = record.job.devices(i).substr(0, record.job.devices(i).find('/'));
      record.lost.insert(worker);
      record.worker_devices[worker].push_back(i);
    }
    *record.trace.mutable_devices() = record.job.devices();
    Transition(record, v1::JOB_STATE_RECOVERING, "the planner was restarted");
    record.deadline = absl::Now() + options_.recovery_timeout;
  }
  ASSIGN_OR_RETURN(auto requests, store_->Scan("requests/"));
  for (const auto& [key, value] : requests)
    requests_[key.substr(std::string("requests/").size())] = value;
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> JobManager::Submit(const v1::JobSpec& spec, const std::string& request_id) {
  RETURN_IF_ERROR(CheckSpec(spec));
  absl::MutexLock lock(&mutex_);
  if (auto it = requests_.find(request_id); !request_id.empty() && it != requests_.end()) {
    Record* record = Find(it->second);
    if (record != nullptr) return WithoutGraph(record->job);
  }
  const int64_t number = next_job_;
  v1::Job job;
  job.set_name(JobName(number));
  job.set_state(v1::JOB_STATE_PENDING);
  *job.mutable_spec() = spec;
  job.mutable_metrics()->set_accuracy(-1);
  job.set_version(1);
  SetNow(job.mutable_create_time());
  std::vector<Mutation> batch = {{JobKey(number), job.SerializeAsString()}};
  if (!request_id.empty()) batch.push_back({"requests/" + request_id, job.name()});
  RETURN_IF_ERROR(store_->Write(batch));

  ++next_job_;
  if (!request_id.empty()) requests_[request_id] = job.name();
  Record& record = jobs_[number];
  record.job = std::move(job);
  Announce(record);
  Advance();
  return WithoutGraph(record.job);
}

absl::StatusOr<v1::Job> JobManager::Get(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  auto it = jobs_.find(JobNumber(name));
  if (it == jobs_.end()) return NoSuchJob(name);
  return WithNames(it->second.job);
}

absl::StatusOr<v1::ListJobsResponse> JobManager::List(int page_size,
                                                      const std::string& page_token) const {
  if (page_size < 0) return absl::InvalidArgumentError("page_size must not be negative");
  const int limit = page_size == 0 ? kDefaultPageSize : std::min(page_size, kLargestPageSize);
  int64_t before = std::numeric_limits<int64_t>::max();
  if (!page_token.empty() && !absl::SimpleAtoi(page_token, &before)) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token \"", page_token, "\" was not made by ListJobs"));
  }
  absl::MutexLock lock(&mutex_);
  v1::ListJobsResponse response;
  for (auto it = jobs_.lower_bound(before); it != jobs_.begin();) {
    --it;
    if (response.jobs_size() == limit) {
      response.set_next_page_token(absl::StrCat(it->first + 1));
      break;
    }
    v1::Job* job = response.add_jobs();
    *job = WithoutGraph(it->second.job);
    job->clear_plan();
    job->clear_sequential_plan();
  }
  return response;
}

absl::StatusOr<v1::Job> JobManager::Cancel(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  Record* record = Find(name);
  if (record == nullptr) return NoSuchJob(name);
  if (record->job.state() == v1::JOB_STATE_CANCELLED) return WithoutGraph(record->job);
  if (IsTerminal(record->job.state())) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " has ended already: ", v1::JobState_Name(record->job.state())));
  }
  End(*record, v1::JOB_STATE_CANCELLED, "cancelled by request");
  return WithoutGraph(record->job);
}

absl::StatusOr<v1::GetJobTraceResponse> JobManager::Trace(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  auto it = jobs_.find(JobNumber(name));
  if (it == jobs_.end()) return NoSuchJob(name);
  v1::GetJobTraceResponse trace = it->second.trace;
  if (trace.measured().empty()) {
    auto stored = store_->Read(absl::StrCat("traces/", it->first));
    if (!stored.ok() || !trace.ParseFromString(*stored))
      return absl::FailedPreconditionError(absl::StrCat(name, " has no recorded steps yet"));
  }
  std::stable_sort(trace.mutable_measured()->begin(), trace.mutable_measured()->end(),
                   [](const v1::TraceEvent& a, const v1::TraceEvent& b) {
                     return std::tuple(a.step(), a.start_ns(), a.device()) <
                            std::tuple(b.step(), b.start_ns(), b.device());
                   });
  return trace;
}

absl::StatusOr<int64_t> JobManager::Watch(const std::string& name, Watcher watcher) {
  absl::MutexLock lock(&mutex_);
  Record* record = Find(name);
  if (record == nullptr) return NoSuchJob(name);
  watcher(std::make_shared<const v1::Job>(WithoutGraph(record->job)));
  watches_[next_watch_] = {record->job.name(), std::move(watcher)};
  return next_watch_++;
}

void JobManager::Unwatch(int64_t id) {
  absl::MutexLock lock(&mutex_);
  watches_.erase(id);
}

JobManager::Record* JobManager::Find(const std::string& name) {
  auto it = jobs_.find(JobNumber(name));
  return it == jobs_.end() ? nullptr : &it->second;
}

JobManager::Record* JobManager::FindRun(const std::string& worker, const std::string& name,
                                        int64_t generation) {
  Record* record = Find(name);
  if (record == nullptr || record->job.generation() != generation ||
      IsTerminal(record->job.state()) || !record->worker_devices.contains(worker))
    return nullptr;
  return record;
}

absl::Status JobManager::Persist(Record& record) {
  std::vector<Mutation> batch = {
      {JobKey(JobNumber(record.job.name())), record.job.SerializeAsString()}};
  const bool steps = record.write_steps != absl::InfiniteFuture();
  if (steps) batch.push_back(StepsMutation(record));
  RETURN_IF_ERROR(store_->Write(batch));
  if (steps) record.write_steps = absl::InfiniteFuture();
  return absl::OkStatus();
}

void JobManager::Transition(Record& record, v1::JobState state, const std::string& message) {
  record.job.set_state(state);
  record.job.set_message(message);
  record.job.set_version(record.job.version() + 1);
  record.deadline = absl::InfiniteFuture();
  if (IsTerminal(state)) SetNow(record.job.mutable_end_time());
  if (absl::Status status = Persist(record); !status.ok()) {
    // Nothing may be acted on that is not in the store: the job ends here, and is found in its last
    // stored state after a restart.
    record.job.set_state(v1::JOB_STATE_FAILED);
    record.job.set_message(absl::StrCat("its state cannot be stored: ", status.message()));
  }
  Announce(record);
}

void JobManager::Announce(Record& record) {
  if (options_.on_change) options_.on_change(record.job);
  std::shared_ptr<const v1::Job> snapshot;
  for (const auto& [id, watch] : watches_) {
    if (watch.job != record.job.name()) continue;
    if (snapshot == nullptr) snapshot = std::make_shared<const v1::Job>(Snapshot(record.job));
    watch.watcher(snapshot);
  }
}

void JobManager::End(Record& record, v1::JobState state, const std::string& message) {
  const bool on_workers = OnWorkers(record.job.state());
  if (record.planning != nullptr) record.planning->Cancel();
  if (record.trace.measured_size() > 0) {
    store_
        ->Write({{absl::StrCat("traces/", JobNumber(record.job.name())),
                  record.trace.SerializeAsString()}})
        .IgnoreError();  // A lost trace must not keep a job from ending.
  }
  Transition(record, state, message);
  if (record.write_steps == absl::InfiniteFuture()) record.history = StepHistory();
  if (on_workers) {
    v1::ConnectResponse goodbye = AbortOf(record.job);
    if (state == v1::JOB_STATE_SUCCEEDED) {
      goodbye.mutable_release()->set_job(record.job.name());
      goodbye.mutable_release()->set_generation(record.job.generation());
    }
    SendToAll(record, goodbye);
  }
  registry_->Release(record.job.name());
  Advance();
}

v1::ConnectResponse JobManager::AbortOf(const v1::Job& job) {
  v1::ConnectResponse message;
  message.mutable_abort()->set_job(job.name());
  message.mutable_abort()->set_generation(job.generation());
  message.mutable_abort()->set_reason(job.message());
  return message;
}

void JobManager::SendToAll(const Record& record, const v1::ConnectResponse& message) {
  for (const auto& [worker, devices] : record.worker_devices) registry_->Send(worker, message);
}

}  // namespace stagewright
