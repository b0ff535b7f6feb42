#include "tests/planner_service/queue/queue_cases.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright::testing {
namespace {

const Account kAccounts[] = {Account::Of("", ""), Account::Of("ann", ""), Account::Of("bob", ""),
                             Account::Of("", "bob")};

absl::Duration RandomTime(Rng& rng) { return absl::Seconds(Uniform(rng, 1, 50)); }

}  // namespace

WaitingJob Waits(int64_t number, int64_t devices, int32_t priority) {
  WaitingJob job;
  job.number = number;
  job.account.owner = "ann";
  job.priority = priority;
  job.least = job.most = devices;
  return job;
}

HoldingJob Holds(int64_t number, int64_t devices, int32_t priority) {
  HoldingJob job;
  job.number = number;
  job.account.owner = "ann";
  job.priority = priority;
  job.devices = job.returns = devices;
  return job;
}

QueueState StateOf(int64_t free, std::vector<HoldingJob> holding, std::vector<WaitingJob> waiting) {
  QueueState state;
  state.now = absl::UnixEpoch();
  state.holding = std::move(holding);
  state.waiting = std::move(waiting);
  state.devices.free = free;
  return state;
}

std::string ToText(const QueueDecision& decision) {
  std::vector<std::string> parts;
  const auto add = [&](const char* what, const auto& list, const auto& text) {
    if (list.empty()) return;
    parts.push_back(
        absl::StrCat(what, " ", absl::StrJoin(list, ", ", [&](std::string* out, const auto& item) {
                       absl::StrAppend(out, text(item));
                     })));
  };
  add("starts", decision.starts,
      [](const StartingJob& job) { return absl::StrCat(job.number, ":", job.devices); });
  add("preempts", decision.preemptions,
      [](const Preemption& job) { return absl::StrCat(job.number, " for ", job.room_for); });
  add("spares", decision.spared, [](int64_t job) { return absl::StrCat(job); });
  add("waits", decision.queued, [](const QueuedJob& job) {
    return absl::StrCat(job.number, " ", WaitReasonName(job.reason));
  });
  return absl::StrJoin(parts, " | ");
}

QueueState RandomState(Rng& rng) {
  QueueState state;
  state.now = absl::FromUnixSeconds(1'000'000);
  const int64_t holding = Uniform(rng, 0, 6), waiting = Uniform(rng, 0, 8);
  for (int64_t i = 0; i < holding + waiting; ++i) {
    const Account& account = kAccounts[Uniform(rng, 0, 3)];
    const auto priority = static_cast<int32_t>(Uniform(rng, -1, 2));
    const bool preemptible = Uniform(rng, 0, 1) == 1, timed = Uniform(rng, 0, 1) == 1;
    if (i < holding) {
      HoldingJob job = {i + 1, account, priority, preemptible, Uniform(rng, 1, 4), 0, {}, {}};
      job.returns = Uniform(rng, 0, 5) == 0 ? job.devices - 1 : job.devices;
      if (timed) job.ends = state.now + RandomTime(rng);
      state.holding.push_back(job);
    } else {
      WaitingJob job = {i + 1, account, priority, preemptible, Uniform(rng, 1, 6), 0, {}, false};
      job.most = Uniform(rng, 0, 3) == 0 ? job.least + Uniform(rng, 1, 6) : job.least;
      if (timed) job.takes = RandomTime(rng);
      state.waiting.push_back(job);
    }
  }
  state.devices.free = Uniform(rng, 0, 8);
  return state;
}

QueueRules RandomRules(Rng& rng) {
  QueueRules rules;
  for (const Account& account : kAccounts) {
    if (Uniform(rng, 0, 2) == 0) rules.quotas[account] = Uniform(rng, 0, 8);
  }
  if (Uniform(rng, 0, 2) == 0) rules.other_owners = Uniform(rng, 0, 8);
  if (Uniform(rng, 0, 2) == 0) rules.other_tenants = Uniform(rng, 0, 8);
  return rules;
}

}  // namespace stagewright::testing
