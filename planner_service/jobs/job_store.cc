#include "planner_service/jobs/job_store.h"

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner_service/jobs/job_proto.h"

namespace stagewright {
namespace {

constexpr absl::string_view kRequests = "requests/";
constexpr char kNextNumber[] = "next_job";

std::string JobKey(const Job& job) { return absl::StrFormat("jobs/%012d", job.number); }
std::string StepsKey(const Job& job) { return absl::StrCat("steps/", job.name()); }
std::string TraceKey(const Job& job) { return absl::StrCat("traces/", job.number); }

Mutation StepsMutation(const Job& job, const StepHistory& steps) {
  return {StepsKey(job), steps.ToProto().SerializeAsString()};
}

Mutation RequestMutation(const std::string& id, const KnownRequest& request) {
  return {absl::StrCat(kRequests, id), ToText(request)};
}

absl::Status Damaged(absl::string_view key) {
  return absl::DataLossError(absl::StrCat("store: entry ", key, " is damaged"));
}

}  // namespace

absl::Status JobStore::Write(const Job& job, const StepHistory* steps,
                             const std::string& request_id, const std::string& digest) {
  std::vector<Mutation> batch = {
      {JobKey(job), ToProto(job, GraphDetail::kAll).SerializeAsString()}};
  if (steps != nullptr) batch.push_back(StepsMutation(job, *steps));
  if (!request_id.empty()) batch.push_back(RequestMutation(request_id, {job.name(), digest}));
  return store_->Write(batch);
}

absl::Status JobStore::WriteRequest(const std::string& id, const KnownRequest& request) {
  return store_->Write({RequestMutation(id, request)});
}

absl::Status JobStore::Remove(const Job& job, const std::vector<std::string>& request_ids,
                              int64_t next_number) {
  std::vector<Mutation> batch = {
      {JobKey(job), std::nullopt}, {StepsKey(job), std::nullopt}, {TraceKey(job), std::nullopt}};
  for (const std::string& id : request_ids)
    batch.push_back({absl::StrCat(kRequests, id), std::nullopt});
  batch.push_back({kNextNumber, absl::StrCat(next_number)});
  return store_->Write(batch);
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

absl::StatusOr<std::vector<v1::Job>> JobStore::ReadJobs() const {
  ASSIGN_OR_RETURN(const auto entries, store_->Scan("jobs/"));
  std::vector<v1::Job> jobs;
  for (const auto& [key, value] : entries) {
    v1::Job& job = jobs.emplace_back();
    if (!job.ParseFromString(value)) return Damaged(key);
    if (JobNumber(job.name()) < 0)
      return absl::DataLossError(absl::StrCat("store: entry ", key, " has no job name"));
  }
  return jobs;
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
