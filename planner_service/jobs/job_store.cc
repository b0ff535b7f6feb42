#include "planner_service/jobs/job_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/store/set_aside.h"

namespace stagewright {
namespace {

constexpr absl::string_view kJobs = "jobs/";
constexpr absl::string_view kSteps = "steps/";
constexpr absl::string_view kTraces = "traces/";
constexpr absl::string_view kRequests = "requests/";
constexpr char kNextNumber[] = "next_job";

std::string JobKey(int64_t number) { return absl::StrFormat("%s%012d", kJobs, number); }
std::string StepsKey(const Job& job) { return absl::StrCat(kSteps, job.name()); }
std::string TraceKey(const Job& job) { return absl::StrCat(kTraces, job.number); }

Mutation StepsMutation(const Job& job, const StepHistory& steps) {
  return {StepsKey(job), steps.ToProto().SerializeAsString()};
}

Mutation RequestMutation(const std::string& id, const KnownRequest& request) {
  return {absl::StrCat(kRequests, id), ToText(request)};
}

bool ReadJob(absl::string_view key, const std::string& value, v1::Job& job) {
  return job.ParseFromString(value) && !job.name().empty() && job.name() == JobOfEntry(key);
}

absl::Status Damaged(absl::string_view key) {
  return absl::DataLossError(absl::StrCat("store: entry ", key, " is damaged"));
}

}  // namespace

std::string JobOfEntry(absl::string_view key) {
  if (absl::ConsumePrefix(&key, kSteps)) return std::string(key);
  if (!absl::ConsumePrefix(&key, kTraces) && !absl::ConsumePrefix(&key, kJobs)) return "";
  int64_t number = 0;
  return absl::SimpleAtoi(key, &number) ? absl::StrCat("jobs/", number) : "";
}

bool IsReadableEntry(absl::string_view key, const std::string& value) {
  if (absl::StartsWith(key, kJobs)) {
    v1::Job job;
    return ReadJob(key, value, job);
  }
  if (IsPartEntry(key)) return IsWholePart(key, value);
  if (absl::StartsWith(key, kSteps)) return v1::ListJobStepsResponse().ParseFromString(value);
  if (absl::StartsWith(key, kTraces)) return v1::GetJobTraceResponse().ParseFromString(value);
  return true;
}

absl::Status JobStore::Write(const Job& job, const StepHistory* steps,
                             const std::string& request_id, const std::string& digest) {
  v1::Job entry = ToProto(job, GraphDetail::kAll);
  std::vector<Mutation> batch;
  const JobParts::Change parts = parts_.Split(job.number, entry, batch);
  batch.push_back({JobKey(job.number), entry.SerializeAsString()});
  if (steps != nullptr) batch.push_back(StepsMutation(job, *steps));
  if (!request_id.empty()) batch.push_back(RequestMutation(request_id, {job.name(), digest}));
  return WriteWithParts(batch, parts);
}

absl::Status JobStore::WriteRequest(const std::string& id, const KnownRequest& request) {
  return store_->Write({RequestMutation(id, request)});
}

absl::Status JobStore::WriteWithParts(const std::vector<Mutation>& batch,
                                      const JobParts::Change& parts) {
  absl::Status written = store_->Write(batch);
  if (written.ok()) {
    parts_.Done(parts);
  } else {
    parts_.Doubt(parts);
  }
  return written;
}

absl::Status JobStore::Remove(const Job& job, const std::vector<std::string>& request_ids,
                              int64_t next_number) {
  std::vector<Mutation> batch = {{JobKey(job.number), std::nullopt},
                                 {StepsKey(job), std::nullopt},
                                 {TraceKey(job), std::nullopt}};
  const JobParts::Change parts = parts_.Drop(job.number, batch);
  for (const std::string& id : request_ids)
    batch.push_back({absl::StrCat(kRequests, id), std::nullopt});
  batch.push_back({kNextNumber, absl::StrCat(next_number)});
  return WriteWithParts(batch, parts);
}

absl::StatusOr<int64_t> JobStore::ReadNextNumber() const {
  const auto stored = store_->Read(kNextNumber);
  if (absl::IsNotFound(stored.status())) return 1;
  RETURN_IF_ERROR(stored.status());
  int64_t number = 0;
  if (!absl::SimpleAtoi(*stored, &number) || number < 1) return Damaged(kNextNumber);
  return number;
}

absl::Status JobStore::WriteSteps(const Job& job, const StepHistory& steps) {
  return store_->Write({StepsMutation(job, steps)});
}

absl::Status JobStore::WriteTrace(const Job& job, const v1::GetJobTraceResponse& trace) {
  return store_->Write({{TraceKey(job), trace.SerializeAsString()}});
}

absl::StatusOr<StoredJobs> JobStore::ReadJobs() {
  StoredJobs stored;
  RETURN_IF_ERROR(parts_.Load(*store_));
  {
    ASSIGN_OR_RETURN(auto entries, store_->Scan(std::string(kJobs)));
    for (auto& [key, value] : entries) {
      v1::Job job;
      if (ReadJob(key, value, job)) {
        stored.jobs.push_back(std::move(job));
      } else {
        stored.damaged.push_back(key);
      }
      std::string().swap(value);  // Both forms of all jobs at once would take twice the memory.
    }
  }
  for (const std::string& key : stored.damaged) RETURN_IF_ERROR(SetAside(*store_, key));
  if (!stored.jobs.empty()) stored.last_number = JobNumber(stored.jobs.back().name());
  ASSIGN_OR_RETURN(const std::vector<std::string> aside, KeysSetAside(*store_));
  for (const std::string& key : aside)
    stored.last_number = std::max(stored.last_number, JobNumber(JobOfEntry(key)));
  return stored;
}

absl::Status JobStore::SetJobAside(const std::string& name) {
  return SetAside(*store_, JobKey(JobNumber(name)));
}

absl::Status JobStore::Complete(v1::Job& job) const {
  return parts_.Join(*store_, JobNumber(job.name()), job);
}

std::function<absl::StatusOr<Job>()> JobStore::ReaderOf(int64_t number) const {
  return [store = store_,
          parts = JobParts::Change{number, parts_.Of(number)}]() -> absl::StatusOr<Job> {
    const std::string key = JobKey(parts.job);
    ASSIGN_OR_RETURN(const std::string stored, store->Read(key));
    v1::Job job;
    if (!ReadJob(key, stored, job)) return Damaged(key);
    RETURN_IF_ERROR(JobParts::Join(*store, parts, job));
    return FromProto(std::move(job));
  };
}

absl::StatusOr<StepHistory> JobStore::ReadSteps(const Job& job) const {
  auto stored = store_->Read(StepsKey(job));
  if (absl::IsNotFound(stored.status())) return StepHistory();
  RETURN_IF_ERROR(stored.status());
  v1::ListJobStepsResponse steps;
  if (!steps.ParseFromString(*stored)) return Damaged(StepsKey(job));
  return StepHistory::FromProto(steps);
}

absl::StatusOr<v1::GetJobTraceResponse> JobStore::ReadTrace(const Job& job) const {
  ASSIGN_OR_RETURN(const std::string stored, store_->Read(TraceKey(job)));
  v1::GetJobTraceResponse trace;
  if (!trace.ParseFromString(stored)) return Damaged(TraceKey(job));
  return trace;
}

absl::StatusOr<std::map<std::string, std::string>> JobStore::ReadRequests() const {
  ASSIGN_OR_RETURN(const auto entries, store_->Scan(std::string(kRequests)));
  std::map<std::string, std::string> requests;
  for (const auto& [key, value] : entries) requests[key.substr(kRequests.size())] = value;
  return requests;
}

}  // namespace stagewright
