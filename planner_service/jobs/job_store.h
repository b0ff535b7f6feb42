// Jobs, their steps, their traces and their logs in the store.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/wire/step_history.h"
#include "planner_service/jobs/job.h"
#include "planner_service/jobs/job_parts.h"
#include "planner_service/jobs/request_book.h"
#include "planner_service/store/store.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// The job that an entry is about, "jobs/7"; empty for other entries.
std::string JobOfEntry(absl::string_view key);
// Whether the value can be read as what the key says that it is. Entries that are not about jobs
// are for others to read.
bool IsReadableEntry(absl::string_view key, const std::string& value);

// What is known of a job that has ended without reading it.
struct EndedJob {
  int64_t number = 0;
  JobState state = JobState::kFailed;
  absl::Time end_time;
  int64_t version = 0;
  std::string owner, tenant, display_name;
};

// REQUIRES: the job has ended.
EndedJob SummaryOf(const Job& job);

// What the store has of jobs.
struct StoredJobs {
  // Those that have not ended, in the order of their numbers, perhaps without graph and plans,
  // which are kept apart.
  std::vector<v1::Job> jobs;
  std::vector<EndedJob> ended;  // The others; likewise.
  // Keys of entries that cannot be read. They are set aside.
  std::vector<std::string> damaged;
  int64_t last_number = 0;  // No job, not even one that cannot be read, has a larger one.
};

// Not thread-safe, but for ReadEnded, ReadSteps, ReadTrace and ReadLog. The store outlives it.
class JobStore {
 public:
  explicit JobStore(Store* store) : store_(store) {}

  // All at once: the job, with its summary if it has ended, its steps unless null, that
  // `request_id` made it unless empty, with the request's digest, and its log unless null.
  absl::Status Write(const Job& job, const StepHistory* steps, const std::string& request_id = "",
                     const std::string& digest = "", const v1::ListJobLogsResponse* log = nullptr);
  // Nothing of a job that has ended is written any more until it is removed.
  void Rest(int64_t job) { parts_.Rest(job); }
  // That the id was one of a request for a job.
  absl::Status WriteRequest(const std::string& id, const KnownRequest& request);
  // All that there is of the job, with those requests; its number is not given again: the next job
  // has `next_number`.
  absl::Status Remove(int64_t job, const std::vector<std::string>& request_ids,
                      int64_t next_number);
  // At least the number that the next job has by Remove; 1 if none was removed.
  absl::StatusOr<int64_t> ReadNextNumber() const;
  // A version larger than all that planners before this one may have told of these jobs, their
  // progress and reasons to wait included, which are not stored. For each planner that begins to
  // serve from the store.
  absl::StatusOr<int64_t> BeginLife(const std::vector<v1::Job>& jobs);
  // Writes what is there already, to see whether the store takes anything.
  absl::Status TryToWrite();
  absl::Status WriteSteps(const Job& job, const StepHistory& steps);
  absl::Status WriteTrace(const Job& job, const v1::GetJobTraceResponse& trace);
  absl::Status WriteLog(const Job& job, const v1::ListJobLogsResponse& log);

  // O(jobs that have not ended), but for keys and summaries. What a program that wrote no summaries
  // has left is read once, and gets them.
  absl::StatusOr<StoredJobs> ReadJobs();
  // Adds graph and plans to a job that ReadJobs gave. DATA_LOSS names what is missing. With the
  // same `read`, of jobs with one graph the first alone reads it: each read of a store on another
  // machine takes its way there and back.
  absl::Status Complete(v1::Job& job, JobParts::Blobs& read) const;
  // Reads one as it was written last, with graph and plans, when it is called, by any thread: it
  // needs the store alone. NOT_FOUND; DATA_LOSS, also if the job is removed meanwhile.
  std::function<absl::StatusOr<Job>()> ReaderOf(int64_t number) const;
  // One that has ended, as lists show it: without graph and plans. NOT_FOUND; DATA_LOSS.
  absl::StatusOr<Job> ReadEnded(int64_t number) const;
  // For one whose parts do not fit together.
  absl::Status SetJobAside(const std::string& name);
  // The history of a job as it was written last; empty if it never was. DATA_LOSS names the entry
  // if it is damaged; likewise below.
  absl::StatusOr<StepHistory> ReadSteps(int64_t job) const;
  // NOT_FOUND if none was written.
  absl::StatusOr<v1::GetJobTraceResponse> ReadTrace(int64_t job) const;
  // Lines with a greater position than that; none if no log was written.
  absl::StatusOr<v1::ListJobLogsResponse> ReadLog(int64_t job, int64_t after_position) const;
  // By id, as RequestBook reads them.
  absl::StatusOr<std::map<std::string, std::string>> ReadRequests() const;

 private:
  // `least` if there is none; DATA_LOSS.
  absl::StatusOr<int64_t> ReadNumber(const std::string& key, int64_t least) const;
  absl::Status WriteWithParts(const std::vector<Mutation>& batch, const JobParts::Change& parts);
  // Those of jobs without a summary, which are added to `stored`.
  absl::Status ReadUnsummed(const std::vector<std::string>& keys, StoredJobs& stored);

  Store* const store_;
  JobParts parts_;
};

}  // namespace stagewright
