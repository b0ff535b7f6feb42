// What is wrong with a service, found in what it says of itself.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "stagewright/v1/job_service.pb.h"
#include "stagewright/v1/links.pb.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

enum class Verdict { kGood, kWarning, kBad };

// "good", "warning", "bad".
const char* VerdictName(Verdict verdict);

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string what;    // "workers": what was looked at.
  std::string detail;  // What was seen.
  std::string advice;  // What to do; empty if nothing is.
};

// Whether these versions work together; `own` is that of the client.
Finding CheckVersions(const std::string& own, const v1::GetServerResponse& server,
                      const v1::ListWorkersResponse& workers);
// Whether workers are there, are heard of and take jobs.
Finding CheckWorkers(const v1::GetServerResponse& server, const v1::ListWorkersResponse& workers,
                     absl::Time now);
// Whether the planner's state has room; `writable`: what it says of that itself.
Finding CheckState(const v1::GetServerResponse& server, bool writable);
// Whether plans are made at once.
Finding CheckQueue(const v1::GetServerResponse& server);
// Whether plans reckon with measured links, as far as the planner told that it was `asked`.
Finding CheckLinks(const absl::Status& asked, const v1::MeasureTopologyResponse& topology);
// Jobs that wait for what no other job has, come back, or have failed of late (within a day).
Finding CheckJobs(const std::vector<v1::Job>& jobs, absl::Time now);

}  // namespace stagewright::cli
