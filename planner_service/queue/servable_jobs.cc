#include "planner_service/queue/servable_jobs.h"

#include <algorithm>

namespace stagewright {

int64_t ServableJobs(const QueueState& queue, const QueueRules& rules) {
  int64_t there = queue.devices.free + queue.devices.ending;
  for (const HoldingJob& job : queue.holding) there += job.returns;
  return std::count_if(queue.waiting.begin(), queue.waiting.end(), [&](const WaitingJob& job) {
    return (job.least <= there || job.awaits_workers) &&
           job.least <= rules.QuotaOf(job.account).value_or(job.least);
  });
}

}  // namespace stagewright
