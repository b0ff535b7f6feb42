// Jobs, their steps and their traces in the store.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/wire/step_history.h"
#include "planner_service/jobs/job.h"
#include "planner_service/store/store.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// As thread-safe as the store, which outlives it.
class JobStore {
 public:
  explicit JobStore(Store* store) : store_(store) {}

  // All at once: the job, its steps unless null, and that `request_id` made it unless empty.
  absl::Status Write(const Job& job, const StepHistory* steps, const std::string& request_id = "");
  absl::Status WriteSteps(const Job& job, const StepHistory& steps);
  absl::Status WriteTrace(const Job& job, const v1::GetJobTraceResponse& trace);

  // DATA_LOSS names the entry that is damaged.
  absl::StatusOr<std::vector<v1::Job>> ReadJobs() const;
  // The history of a job as it was written last; empty if it never was.
  absl::StatusOr<StepHistory> ReadSteps(const Job& job) const;
  // NOT_FOUND if none was written.
  absl::StatusOr<v1::GetJobTraceResponse> ReadTrace(const Job& job) const;
  // Names of jobs by the request that made them.
  absl::StatusOr<std::map<std::string, std::string>> ReadRequests() const;

 private:
  Store* const store_;
};

}  // namespace stagewright
