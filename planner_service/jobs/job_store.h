// Jobs, their steps and their traces in the store.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/wire/step_history.h"
#include "planner_service/jobs/job.h"
#include "planner_service/jobs/request_book.h"
#include "planner_service/store/store.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// As thread-safe as the store, which outlives it.
class JobStore {
 public:
  explicit JobStore(Store* store) : store_(store) {}

  // All at once: the job, its steps unless null, and that `request_id` made it unless empty, with
  // the request's digest.
  absl::Status Write(const Job& job, const StepHistory* steps, const std::string& request_id = "",
                     const std::string& digest = "");
  // That the id was one of a request for a job.
  absl::Status WriteRequest(const std::string& id, const KnownRequest& request);
  // All that there is of the job, with those requests; its number is not given again: the next job
  // has `next_number`.
  absl::Status Remove(const Job& job, const std::vector<std::string>& request_ids,
                      int64_t next_number);
  // At least the number that the next job has by Remove; 1 if none was removed.
  absl::StatusOr<int64_t> ReadNextNumber() const;
  absl::Status WriteSteps(const Job& job, const StepHistory& steps);
  absl::Status WriteTrace(const Job& job, const v1::GetJobTraceResponse& trace);

  // DATA_LOSS names the entry that is damaged.
  absl::StatusOr<std::vector<v1::Job>> ReadJobs() const;
  // The history of a job as it was written last; empty if it never was.
  absl::StatusOr<StepHistory> ReadSteps(const Job& job) const;
  // NOT_FOUND if none was written.
  absl::StatusOr<v1::GetJobTraceResponse> ReadTrace(const Job& job) const;
  // By id, as RequestBook reads them.
  absl::StatusOr<std::map<std::string, std::string>> ReadRequests() const;

 private:
  Store* const store_;
};

}  // namespace stagewright
