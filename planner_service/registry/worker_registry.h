// Which workers are connected, what devices they have, and which job holds each device.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/registry/link_table.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// A device of a connected worker.
struct RegisteredDevice {
  std::string worker;
  int32_t index = 0;  // In the worker's Register.devices.
  v1::Device device;
  v1::DeviceKind kind;
  std::string host_address;
  int32_t host_cores = 0;  // 0: not known.
  int32_t threads = 0;     // Threads that it computes with; 0 for GPUs.
  bool probes_links = false;
  std::string software;  // Register.software.
  std::string job;       // The job that holds it; empty if free.

  std::string QualifiedName() const { return worker + "/" + device.name(); }
};

// Thread-safe.
class WorkerRegistry {
 public:
  // Sends a message down a worker's stream; false once the stream is closed. Must not block or call
  // back.
  using Sink = std::function<bool(const v1::ConnectResponse&)>;

  // Adds a worker. INVALID_ARGUMENT: no name, no device, bad device fields. ALREADY_EXISTS: a live
  // worker has the name. Returns the session: later calls of an older session have no effect.
  absl::StatusOr<int64_t> Register(const v1::Register& message, Sink sink, absl::Time now);
  // Forgets the worker if `session` is its present one. Devices held by jobs are gone with it.
  bool Unregister(const std::string& worker, int64_t session);
  // The worker was heard. False if the session is over: its stream must end, so that it registers
  // again.
  bool Heartbeat(const std::string& worker, int64_t session, absl::Time now);
  // Workers not heard of since `deadline`.
  std::vector<std::pair<std::string, int64_t>> Silent(absl::Time deadline) const;

  // Free devices or all, by (worker, index).
  std::vector<RegisteredDevice> Devices(bool free_only) const;
  // Gives all of `devices` (qualified names) to `job`, or none: FAILED_PRECONDITION names the first
  // that is gone or held by another job.
  absl::Status Allocate(const std::string& job, const std::vector<std::string>& devices);
  void Release(const std::string& job);

  // False if the worker is not connected.
  bool Send(const std::string& worker, const v1::ConnectResponse& message) const;
  bool Connected(const std::string& worker) const;
  std::vector<v1::Worker> List() const;

  // What was measured of the links between workers, connected or not.
  LinkTable Links() const;
  void SetLinks(LinkTable links);

 private:
  struct Worker {
    v1::Register registration;
    std::vector<std::string> holder;  // Job per device; empty if free.
    Sink sink;
    int64_t session = 0;
    absl::Time last_heard;
  };

  mutable absl::Mutex mutex_;
  std::map<std::string, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  LinkTable links_ ABSL_GUARDED_BY(mutex_);
  int64_t next_session_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace stagewright
