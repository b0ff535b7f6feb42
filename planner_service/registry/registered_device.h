// A device as jobs and the queue see it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// A worker leaves a run that is over within so long, unless something hangs there: nobody counts on
// its devices any more then.
inline constexpr absl::Duration kRunsEndWithin = absl::Seconds(10);

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
  bool proves_key = false;  // Register.proves_key.
  std::string software;     // Register.software.
  std::string job;          // The job that holds it, or has not left it yet; empty if none.
  bool ending = false;      // It holds it no more, but has not left it yet.
  bool stuck = false;       // Nor for longer than kRunsEndWithin: it may never.
  bool available = true;  // Once no job holds it: its worker is open, and it is not in quarantine.
  v1::WorkerAvailability availability = v1::WORKER_AVAILABILITY_OPEN;  // Its worker's.

  std::string QualifiedName() const { return worker + "/" + device.name(); }
};

}  // namespace stagewright
