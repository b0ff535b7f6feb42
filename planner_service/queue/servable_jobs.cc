#include "planner_service/queue/servable_jobs.h"

#include <algorithm>
#include <map>
#include <optional>

#include "planner_service/queue/named_devices.h"

namespace stagewright {

int64_t ServableJobs(const QueueState& queue, const QueueRules& rules, const Account& account) {
  int64_t there = queue.devices.free + queue.devices.ending;
  const NamedDevices named(queue.named);
  std::map<Account, int64_t> in_use;
  for (const HoldingJob& job : queue.holding) {
    there += job.returns;
    in_use[job.account] += job.devices;
  }
  return std::count_if(queue.waiting.begin(), queue.waiting.end(), [&](const WaitingJob& job) {
    const bool out = named.AnyOut(job);
    if ((job.least > there || out) && !job.awaits_workers) return false;
    const std::optional<int64_t> quota = rules.QuotaOf(job.account);
    return !quota.has_value() ||
           job.least + (job.account == account ? 0 : in_use[job.account]) <= *quota;
  });
}

}  // namespace stagewright
