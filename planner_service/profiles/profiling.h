// Measurements that workers are making.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "planner_service/profiles/profile_store.h"
#include "planner_service/registry/worker_registry.h"
#include "stagewright/v1/profile.pb.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Thread-safe.
class Profiling {
 public:
  // Called once, without locks held.
  using Done = std::function<void(absl::StatusOr<v1::ProfileGraphResponse>)>;

  // Both outlive it.
  Profiling(ProfileStore* store, WorkerRegistry* registry) : store_(store), registry_(registry) {}

  // Takes the device and has its worker measure; what comes is kept, then told. Waits for a device
  // that a run is about to leave, as after a job that has just ended. Returns the number to cancel
  // by. NOT_FOUND if there is no such device, FAILED_PRECONDITION if none is free or the worker's
  // program cannot measure, INVALID_ARGUMENT for a negative number of samples; then `done` is not
  // called.
  absl::StatusOr<int64_t> Start(const v1::ProfileGraphRequest& request, Done done);
  void Cancel(int64_t number);

  void OnProfiled(const std::string& worker, const v1::OperatorsProfiled& message);
  // A session of the worker is over. What a later one measures goes on.
  void OnLost(const std::string& worker);
  // Time passes: workers that are gone are noticed, whether or not they are back, and devices that
  // are free now.
  void Tick();

  ProfileStore& store() const { return *store_; }

 private:
  struct Running {
    RegisteredDevice device;
    Done done;
    // What to ask the worker when the device is free, until then.
    std::optional<v1::ProfileGraphRequest> waiting;
  };
  // A measurement holds its device for as long as its worker's session lasts.
  bool Holds(int64_t number) const;
  void EndLost(int64_t number, const std::string& worker);
  // Takes a device for what waits and asks its worker; nothing if it must wait on.
  absl::Status TryBegin(int64_t number);
  // Ends one, unless it has ended: frees the device.
  void End(int64_t number, absl::StatusOr<v1::ProfileGraphResponse> result);
  absl::StatusOr<v1::ProfileGraphResponse> Keep(const RegisteredDevice& device,
                                                const v1::OperatorsProfiled& message);

  ProfileStore* const store_;
  WorkerRegistry* const registry_;
  absl::Mutex mutex_;
  std::map<int64_t, Running> running_ ABSL_GUARDED_BY(mutex_);
  // By the clock: answers to a planner before this one are none to it.
  int64_t next_ ABSL_GUARDED_BY(mutex_) = absl::ToUnixMicros(absl::Now());
};

}  // namespace stagewright
