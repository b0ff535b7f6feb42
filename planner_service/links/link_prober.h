// Has the links between registered workers measured, one probe after the other, in the background:
// when a worker comes, and on request. Nothing waits for it.
//
// A probe that nobody answers, or whose figures cannot be, is noted as a failure of that link,
// unless it was measured before: then that stands. The others go on. A worker that gets a job ends
// its probe, which is tried again later; so is, some times, one that other programs disturb: its
// figures cannot be, or devices that work at once have not their part of the cores.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/links/link_keeper.h"
#include "planner_service/links/probes.h"
#include "planner_service/registry/worker_registry.h"
#include "planner_service/store/store.h"
#include "stagewright/v1/links.pb.h"

namespace stagewright {

// Thread-safe, and no call but Recover waits for the store, which gets figures in the background.
// Store and registry outlive it; the registry has the figures.
class LinkProber {
 public:
  // A probe that takes longer has failed.
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  LinkProber(Store* store, WorkerRegistry* registry)
      : store_(store), registry_(registry), keeper_(store) {}

  // Loads what was measured before. DATA_LOSS if that is damaged.
  absl::Status Recover();

  void OnRegistered(const v1::Register& worker, absl::Time now);
  void OnLost(const std::string& worker, absl::Time now);
  void OnReady(const std::string& worker, const v1::ProbeReady& message, absl::Time now);
  void OnProbed(const std::string& worker, const v1::LinksProbed& message, absl::Time now);
  // About twice a second: ends what takes too long, begins what may.
  void Tick(absl::Time now);

  // Everything is to be measured again.
  void MeasureAgain(absl::Time now);
  struct Figures {
    LinkTable table;
    int32_t pending = 0;  // Probes that are under way or to be done; 0: the table has all answers.
  };
  // Both are of one moment.
  Figures figures() const;
  // One is under way, or about to be.
  bool busy() const;

 private:
  struct Running {
    Probe probe;
    int64_t number = 0;
    absl::Time deadline;
    std::set<std::string> awaited;  // Workers that have not answered yet.
    v1::ProbePeers peers;
    std::vector<v1::DeviceProbe> results;  // By participant.
  };

  void Advance(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Begin(const Probe& probe, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the message is the answer that the probe under way waits for.
  bool Takes(const std::string& worker, int32_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Awaits(const std::string& worker, int64_t probe) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const absl::Status& status, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotePair(const absl::Status& status, absl::Time now, LinkTable& table)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteCrowd(const absl::Status& status, absl::Time now, LinkTable& table)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The probe under way once more, in a while: programs of this machine disturbed it. Not for ever.
  void TryAgain(const std::string& host, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string HostOf(const std::string& worker) const;

  Store* const store_;
  WorkerRegistry* const registry_;
  LinkKeeper keeper_;
  mutable absl::Mutex mutex_;
  std::optional<Running> running_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> again_ ABSL_GUARDED_BY(mutex_);  // Names of probes.
  // By machines that have not been quiet since.
  std::map<std::string, int> retries_ ABSL_GUARDED_BY(mutex_);
  // By the clock: answers to a planner before this one are none to it.
  int64_t next_ ABSL_GUARDED_BY(mutex_) = absl::ToUnixMicros(absl::Now());
  absl::Time not_before_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace stagewright
