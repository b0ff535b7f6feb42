// Jobs, their steps and their traces in the store.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/wire/step_history.h"
#include "planner_service/jobs/job.h"
#include "planner_service/jobs/job_parts.h"
#include "planner_service/store/store.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// The job that an entry is about, "jobs/7"; empty for other entries.
std::string JobOfEntry(absl::string_view key);
// Whether the value can be read as what the key says that it is. Entries that are not about jobs
// are for others to read.
bool IsReadableEntry(absl::string_view key, const std::string& value);

// What the store has of jobs.
struct StoredJobs {
  // In the order of their numbers, perhaps without graph and plans, which are kept apart.
  std::vector<v1::Job> jobs;
  // Keys of entries that cannot be read. They are set aside.
  std::vector<std::string> damaged;
  int64_t last_number = 0;  // No job, not even one that cannot be read, has a larger one.
};

// Not thread-safe. The store outlives it.
class JobStore {
 public:
  explicit JobStore(Store* store) : store_(store) {}

  // All at once: the job, its steps unless null, and that `request_id` made it unless empty.
  absl::Status Write(const Job& job, const StepHistory* steps, const std::string& request_id = "");
  absl::Status WriteSteps(const Job& job, const StepHistory& steps);
  absl::Status WriteTrace(const Job& job, const v1::GetJobTraceResponse& trace);

  absl::StatusOr<StoredJobs> ReadJobs();
  // Adds graph and plans to a job that ReadJobs gave. DATA_LOSS names what is missing.
  absl::Status Complete(v1::Job& job) const;
  // One as it was written last, with graph and plans. NOT_FOUND; DATA_LOSS.
  absl::StatusOr<Job> ReadWhole(int64_t number) const;
  // For one whose parts do not fit together.
  absl::Status SetJobAside(const std::string& name);
  // The history of a job as it was written last; empty if it never was. DATA_LOSS names the entry
  // if it is damaged; likewise below.
  absl::StatusOr<StepHistory> ReadSteps(const Job& job) const;
  // NOT_FOUND if none was written.
  absl::StatusOr<v1::GetJobTraceResponse> ReadTrace(const Job& job) const;
  // Names of jobs by the request that made them.
  absl::StatusOr<std::map<std::string, std::string>> ReadRequests() const;

 private:
  Store* const store_;
  JobParts parts_;
};

}  // namespace stagewright
