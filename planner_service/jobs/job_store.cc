#include "planner_service/jobs/job_store.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/clock/steady_now.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/store/set_aside.h"

namespace stagewright {
namespace {

constexpr absl::string_view kJobs = "jobs/";
constexpr absl::string_view kEnded = "ended/";
constexpr absl::string_view kSteps = "steps/";
constexpr absl::string_view kTraces = "traces/";
constexpr absl::string_view kLogs = "logs/";
constexpr absl::string_view kRequests = "requests/";
constexpr char kNextNumber[] = "next_job";
constexpr char kLife[] = "life";  // How many planners have served from the store.
constexpr int kVersionBits = 32;  // No planner tells of more versions of a job.

// Unread jobs of as many that follow each other are read at once, if they are not few.
constexpr size_t kBlock = 100;
constexpr size_t kBlockDigits = 2;
constexpr size_t kFewOfBlock = 8;
constexpr size_t kSummariesAtOnce = 1000;
// Nobody is served while they are written; those that are left are written at the next start.
constexpr absl::Duration kSummariesFor = absl::Seconds(5);

std::string JobKey(int64_t number) { return absl::StrFormat("%s%012d", kJobs, number); }
std::string SummaryKey(int64_t number) { return absl::StrFormat("%s%012d", kEnded, number); }
std::string StepsKey(int64_t number) { return absl::StrCat(kSteps, "jobs/", number); }
std::string TraceKey(int64_t number) { return absl::StrCat(kTraces, number); }
std::string LogKey(int64_t number) { return absl::StrCat(kLogs, number); }

Mutation StepsMutation(const Job& job, const StepHistory& steps) {
  return {StepsKey(job.number), steps.ToProto().SerializeAsString()};
}

Mutation LogMutation(const Job& job, const v1::ListJobLogsResponse& log) {
  return {LogKey(job.number), log.SerializeAsString()};
}

Mutation RequestMutation(const std::string& id, const KnownRequest& request) {
  return {absl::StrCat(kRequests, id), ToText(request)};
}

bool ReadJob(absl::string_view key, const std::string& value, v1::Job& job) {
  return job.ParseFromString(value) && !job.name().empty() && job.name() == JobOfEntry(key);
}

// A job with little in it.
Mutation SummaryMutation(const EndedJob& ended) {
  v1::Job entry;
  entry.set_state(ToProto(ended.state));
  if (ended.end_time != absl::InfiniteFuture()) *entry.mutable_end_time() = ToProto(ended.end_time);
  entry.set_version(ended.version);
  entry.mutable_spec()->set_owner(ended.owner);
  entry.mutable_spec()->set_tenant(ended.tenant);
  entry.mutable_spec()->set_display_name(ended.display_name);
  return {SummaryKey(ended.number), entry.SerializeAsString()};
}

// `entry`: a summary, or the job as it is stored.
EndedJob SummaryOf(int64_t number, const v1::Job& entry) {
  return {number,
          FromProto(entry.state()),
          entry.has_end_time() ? FromProto(entry.end_time()) : absl::InfiniteFuture(),
          entry.version(),
          entry.spec().owner(),
          entry.spec().tenant(),
          entry.spec().display_name()};
}

// False: it is read from the job.
bool ReadSummary(absl::string_view key, const std::string& value, EndedJob& ended) {
  v1::Job entry;
  const int64_t number = JobNumber(JobOfEntry(key));
  if (number < 0 || !entry.ParseFromString(value) || !IsTerminal(FromProto(entry.state())))
    return false;
  ended = SummaryOf(number, entry);
  return true;
}

absl::Status Damaged(absl::string_view key) {
  return absl::DataLossError(absl::StrCat("store: entry ", key, " is damaged"));
}

absl::StatusOr<v1::Job> ReadEntry(const Store& store, int64_t number) {
  const std::string key = JobKey(number);
  ASSIGN_OR_RETURN(const std::string stored, store.Read(key));
  v1::Job job;
  if (!ReadJob(key, stored, job)) return Damaged(key);
  return job;
}

}  // namespace

std::string JobOfEntry(absl::string_view key) {
  if (absl::ConsumePrefix(&key, kSteps)) return std::string(key);
  if (!absl::ConsumePrefix(&key, kTraces) && !absl::ConsumePrefix(&key, kLogs) &&
      !absl::ConsumePrefix(&key, kJobs) && !absl::ConsumePrefix(&key, kEnded))
    return "";
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
  if (absl::StartsWith(key, kEnded)) {
    EndedJob ended;
    return ReadSummary(key, value, ended);
  }
  if (absl::StartsWith(key, kTraces)) return v1::GetJobTraceResponse().ParseFromString(value);
  if (absl::StartsWith(key, kLogs)) return v1::ListJobLogsResponse().ParseFromString(value);
  return true;
}

EndedJob SummaryOf(const Job& job) {
  return {job.number,
          job.state,
          job.end_time,
          job.version,
          job.spec->owner(),
          job.spec->tenant(),
          job.spec->display_name()};
}

absl::Status JobStore::Write(const Job& job, const StepHistory* steps,
                             const std::string& request_id, const std::string& digest,
                             const v1::ListJobLogsResponse* log) {
  std::vector<Mutation> batch;
  const JobParts::Change parts = parts_.Split(
      job.number, {job.graph.seal(), job.plan.seal(), job.sequential_plan.seal()}, batch);
  batch.push_back({JobKey(job.number), ToProto(job, GraphDetail::kApart).SerializeAsString()});
  if (IsTerminal(job.state)) batch.push_back(SummaryMutation(SummaryOf(job)));
  if (steps != nullptr) batch.push_back(StepsMutation(job, *steps));
  if (!request_id.empty()) batch.push_back(RequestMutation(request_id, {job.name(), digest}));
  if (log != nullptr) batch.push_back(LogMutation(job, *log));
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

absl::Status JobStore::Remove(int64_t job, const std::vector<std::string>& request_ids,
                              int64_t next_number) {
  std::vector<Mutation> batch = {{JobKey(job), std::nullopt},
                                 {SummaryKey(job), std::nullopt},
                                 {StepsKey(job), std::nullopt},
                                 {TraceKey(job), std::nullopt},
                                 {LogKey(job), std::nullopt}};
  ASSIGN_OR_RETURN(const JobParts::Change parts, parts_.Drop(*store_, job, batch));
  for (const std::string& id : request_ids)
    batch.push_back({absl::StrCat(kRequests, id), std::nullopt});
  batch.push_back({kNextNumber, absl::StrCat(next_number)});
  return WriteWithParts(batch, parts);
}

absl::StatusOr<int64_t> JobStore::ReadNextNumber() const { return ReadNumber(kNextNumber, 1); }

absl::StatusOr<int64_t> JobStore::BeginLife(const std::vector<v1::Job>& jobs) {
  ASSIGN_OR_RETURN(int64_t life, ReadNumber(kLife, 0));
  for (const v1::Job& job : jobs) life = std::max(life, job.version() >> kVersionBits);
  ++life;
  const absl::Status written = store_->Write({{kLife, absl::StrCat(life)}});
  // A planner whose store has no room now still serves: a version may come to be told twice.
  if (!absl::IsResourceExhausted(written)) RETURN_IF_ERROR(written);
  return life << kVersionBits;
}

absl::Status JobStore::TryToWrite() {
  ASSIGN_OR_RETURN(const int64_t life, ReadNumber(kLife, 0));
  return store_->Write({{kLife, absl::StrCat(life)}});
}

absl::StatusOr<int64_t> JobStore::ReadNumber(const std::string& key, int64_t least) const {
  const auto stored = store_->Read(key);
  if (absl::IsNotFound(stored.status())) return least;
  RETURN_IF_ERROR(stored.status());
  int64_t number = 0;
  if (!absl::SimpleAtoi(*stored, &number) || number < least) return Damaged(key);
  return number;
}

absl::Status JobStore::WriteSteps(const Job& job, const StepHistory& steps) {
  return store_->Write({StepsMutation(job, steps)});
}

absl::Status JobStore::WriteTrace(const Job& job, const v1::GetJobTraceResponse& trace) {
  return store_->Write({{TraceKey(job.number), trace.SerializeAsString()}});
}

absl::Status JobStore::WriteLog(const Job& job, const v1::ListJobLogsResponse& log) {
  return store_->Write({LogMutation(job, log)});
}

absl::StatusOr<StoredJobs> JobStore::ReadJobs() {
  StoredJobs stored;
  ASSIGN_OR_RETURN(const std::vector<std::string> keys, store_->Keys(std::string(kJobs)));
  std::vector<std::string> unread;
  std::vector<Mutation> stale;  // Summaries of jobs that are not there.
  {
    ASSIGN_OR_RETURN(const auto summaries, store_->Scan(std::string(kEnded)));
    auto summary = summaries.begin();
    const auto number_of = [](absl::string_view key) { return key.substr(key.find('/') + 1); };
    EndedJob ended;
    stored.ended.reserve(summaries.size());
    for (const std::string& key : keys) {
      for (; summary != summaries.end() && number_of(summary->first) < number_of(key); ++summary)
        stale.push_back({summary->first, std::nullopt});
      const bool has = summary != summaries.end() && number_of(summary->first) == number_of(key);
      if (has && ReadSummary(summary->first, summary->second, ended)) {
        stored.ended.push_back(std::move(ended));
      } else {
        unread.push_back(key);
      }
      if (has) ++summary;
    }
    for (; summary != summaries.end(); ++summary) stale.push_back({summary->first, std::nullopt});
  }
  if (!stale.empty()) store_->Write(stale).IgnoreError();  // Else the next planner drops them.
  RETURN_IF_ERROR(ReadUnsummed(unread, stored));
  std::set<int64_t> live;
  for (const v1::Job& job : stored.jobs) live.insert(JobNumber(job.name()));
  RETURN_IF_ERROR(parts_.Load(*store_, live));
  for (const std::string& key : stored.damaged) RETURN_IF_ERROR(SetAside(*store_, key));
  if (!live.empty()) stored.last_number = *live.rbegin();
  if (!stored.ended.empty())
    stored.last_number = std::max(stored.last_number, stored.ended.back().number);
  ASSIGN_OR_RETURN(const std::vector<std::string> aside, KeysSetAside(*store_));
  for (const std::string& key : aside)
    stored.last_number = std::max(stored.last_number, JobNumber(JobOfEntry(key)));
  return stored;
}

absl::Status JobStore::ReadUnsummed(const std::vector<std::string>& keys, StoredJobs& stored) {
  std::vector<Mutation> summaries;
  const absl::Time begun = SteadyNow();
  const auto write = [&] {  // Else the next planner reads the jobs again.
    if (!summaries.empty() && SteadyNow() - begun < kSummariesFor)
      store_->Write(summaries).IgnoreError();
    summaries.clear();
  };
  const auto read = [&](const std::string& key, const std::string& value) {
    v1::Job job;
    if (!ReadJob(key, value, job)) {
      stored.damaged.push_back(key);
    } else if (IsTerminal(FromProto(job.state()))) {
      stored.ended.push_back(SummaryOf(JobNumber(job.name()), job));
      summaries.push_back(SummaryMutation(stored.ended.back()));
      if (summaries.size() >= kSummariesAtOnce) write();
    } else {
      stored.jobs.push_back(std::move(job));
    }
  };
  const auto block_of = [](absl::string_view key) {
    return key.substr(0, key.size() - std::min(key.size(), kBlockDigits));
  };
  const size_t with_summary = stored.ended.size();
  for (size_t begin = 0, end = 0; begin < keys.size(); begin = end) {
    const std::string block(block_of(keys[begin]));
    while (end < keys.size() && end < begin + kBlock && block_of(keys[end]) == block) ++end;
    if (end - begin <= kFewOfBlock) {
      for (size_t i = begin; i < end; ++i) {
        ASSIGN_OR_RETURN(const std::string value, store_->Read(keys[i]));
        read(keys[i], value);
      }
      continue;
    }
    ASSIGN_OR_RETURN(const auto entries, store_->Scan(block));
    for (const auto& [key, value] : entries) {
      if (std::binary_search(keys.begin() + begin, keys.begin() + end, key)) read(key, value);
    }
  }
  write();
  std::inplace_merge(stored.ended.begin(), stored.ended.begin() + with_summary, stored.ended.end(),
                     [](const EndedJob& a, const EndedJob& b) { return a.number < b.number; });
  return absl::OkStatus();
}

absl::Status JobStore::SetJobAside(const std::string& name) {
  return SetAside(*store_, JobKey(JobNumber(name)));
}

absl::Status JobStore::Complete(v1::Job& job, JobParts::Blobs& read) const {
  return parts_.JoinKnown(*store_, JobNumber(job.name()), job, read);
}

std::function<absl::StatusOr<Job>()> JobStore::ReaderOf(int64_t number) const {
  return [store = store_, number]() -> absl::StatusOr<Job> {
    ASSIGN_OR_RETURN(v1::Job job, ReadEntry(*store, number));
    RETURN_IF_ERROR(JobParts::Join(*store, number, job));
    return FromProto(std::move(job));
  };
}

absl::StatusOr<Job> JobStore::ReadEnded(int64_t number) const {
  ASSIGN_OR_RETURN(v1::Job job, ReadEntry(*store_, number));
  return FromProto(std::move(job));
}

absl::StatusOr<StepHistory> JobStore::ReadSteps(int64_t job) const {
  auto stored = store_->Read(StepsKey(job));
  if (absl::IsNotFound(stored.status())) return StepHistory();
  RETURN_IF_ERROR(stored.status());
  v1::ListJobStepsResponse steps;
  if (!steps.ParseFromString(*stored)) return Damaged(StepsKey(job));
  return StepHistory::FromProto(steps);
}

absl::StatusOr<v1::GetJobTraceResponse> JobStore::ReadTrace(int64_t job) const {
  ASSIGN_OR_RETURN(const std::string stored, store_->Read(TraceKey(job)));
  v1::GetJobTraceResponse trace;
  if (!trace.ParseFromString(stored)) return Damaged(TraceKey(job));
  return trace;
}

absl::StatusOr<v1::ListJobLogsResponse> JobStore::ReadLog(int64_t job,
                                                          int64_t after_position) const {
  const auto stored = store_->Read(LogKey(job));
  v1::ListJobLogsResponse log;
  if (absl::IsNotFound(stored.status())) return log;
  RETURN_IF_ERROR(stored.status());
  if (!log.ParseFromString(*stored)) return Damaged(LogKey(job));
  auto& lines = *log.mutable_lines();
  const auto seen = [&](const v1::JobLogLine& line) { return line.position() <= after_position; };
  lines.erase(std::remove_if(lines.begin(), lines.end(), seen), lines.end());
  return log;
}

absl::StatusOr<std::map<std::string, std::string>> JobStore::ReadRequests() const {
  ASSIGN_OR_RETURN(const auto entries, store_->Scan(std::string(kRequests)));
  std::map<std::string, std::string> requests;
  for (const auto& [key, value] : entries) requests[key.substr(kRequests.size())] = value;
  return requests;
}

}  // namespace stagewright
