// The devices that waiting jobs name, while jobs are placed one after the other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "planner_service/queue/queue_state.h"

namespace stagewright {

// What a job keeps: those of its devices that no job before it does.
struct KeptDevices {
  int64_t free = 0;
  int64_t ending = 0;
  std::map<int64_t, int64_t> held;  // By the job that holds them.
};

class NamedDevices {
 public:
  explicit NamedDevices(std::map<std::string, NamedDevice> devices)
      : devices_(std::move(devices)) {}

  // REQUIRES, of all jobs: their devices are known. O(the job's devices log devices) each.

  // All of the job's are free, and no job before keeps one, unless it lends it to this one.
  bool AreFree(const WaitingJob& job) const;
  // It cannot start, whoever ends: one is out.
  bool AnyOut(const WaitingJob& job) const;
  // "waits for w1/cpu0, which jobs/3 uses"; empty if AreFree.
  std::string WaitsFor(const WaitingJob& job) const;
  // Jobs that hold some of them; none: it would not do if they left, or not for this job.
  std::optional<std::set<int64_t>> HoldersOf(const WaitingJob& job) const;

  // Free ones that no job keeps.
  int64_t free() const;
  // Free ones that jobs keep which may lend them to this one.
  int64_t LentTo(const WaitingJob& job) const;
  // The job holds its own from now on.
  void TakeOwn(const WaitingJob& job);
  // A job that names none holds so many free ones from now on, which are these. REQUIRES: count is
  // at most free(). O(devices).
  std::vector<std::string> TakeFree(int64_t job, int64_t count);
  // The same for a job that they are lent to. REQUIRES: count is at most LentTo it.
  std::vector<std::string> TakeLent(const WaitingJob& job, int64_t count);
  // Others behind the job cannot have them.
  KeptDevices Keep(const WaitingJob& job);
  // Those that the job keeps may go meanwhile to preemptible ones of lower priority.
  void Lend(const WaitingJob& job);

 private:
  struct Keeper {
    int64_t job = 0;
    int32_t priority = 0;
    bool lends = false;
  };
  bool IsLent(const std::string& name, const WaitingJob& job) const;
  void Take(int64_t job, const std::string& name);

  std::map<std::string, NamedDevice> devices_;
  std::map<std::string, Keeper> kept_;  // The job that keeps each.
};

}  // namespace stagewright
