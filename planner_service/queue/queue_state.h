// What the queue decides by. Devices are counted, and all are as good as each other, but for those
// that waiting jobs name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "planner_service/queue/account.h"

namespace stagewright {

// A job that holds devices, whether it computes on them, is being planned for them or starts.
struct HoldingJob {
  int64_t number = 0;
  Account account;
  int32_t priority = 0;
  bool preemptible = false;  // It can be stopped at a checkpoint now.
  int64_t devices = 0;
  int64_t returns = 0;              // Those of them that others may have after it.
  std::optional<absl::Time> ends;   // Predicted.
  std::optional<int64_t> room_for;  // It is being stopped for that job.
};

// A job that waits for devices.
struct WaitingJob {
  int64_t number = 0;  // In the order of submission.
  Account account;
  int32_t priority = 0;
  bool preemptible = false;
  int64_t least = 1;                    // Devices that it starts with, at least.
  int64_t most = 1;                     // As many as it takes where they are free.
  std::optional<absl::Duration> takes;  // How long it will run, predicted.
  bool held_back = false;               // It may not start yet, but keeps its place.
  bool room_made = false;               // Jobs were or are stopped for it.
  bool awaits_workers = false;          // More devices may connect at any moment, for it to start.
  // It starts on these and no others, sorted: `least` and `most` are their number. Empty: on any.
  std::vector<std::string> named;
};

// One that a waiting job names.
struct NamedDevice {
  enum class State {
    kFree,    // One of DeviceCounts::free.
    kEnding,  // One of DeviceCounts::ending.
    kHeld,    // A job's.
    kOut,     // No job's, and none can have it.
  };
  State state = State::kOut;
  int64_t holder = 0;  // kHeld: the job's number.
  std::string why;     // kHeld and kOut, in words: "jobs/3 uses", "is cordoned".
};

// Devices that no job holds, and why no job can have some of them.
struct DeviceCounts {
  int64_t free = 0;
  int64_t ending = 0;  // A run before has not left them yet; it will in moments.
  int64_t stuck = 0;   // It should have long ago, and may never.
  int64_t cordoned = 0;
  int64_t draining = 0;
  int64_t quarantined = 0;
  int64_t kept = 0;  // Jobs before wait for more than these, which they name.
};

// In any order; numbers differ. A job that holds devices does not wait.
struct QueueState {
  absl::Time now;
  std::vector<HoldingJob> holding;
  std::vector<WaitingJob> waiting;
  DeviceCounts devices;
  std::map<std::string, NamedDevice> named;  // All that waiting jobs name.
};

// How many devices an account's jobs may hold at once.
struct QueueRules {
  std::map<Account, int64_t> quotas;
  // Each other owner, and each other tenant; none: as many as there are.
  std::optional<int64_t> other_owners, other_tenants;

  std::optional<int64_t> QuotaOf(const Account& account) const {
    const auto own = quotas.find(account);
    if (own != quotas.end()) return own->second;
    return account.tenant.empty() ? other_owners : other_tenants;
  }
};

}  // namespace stagewright
