// The worker as one object: devices, the link to the planner, and the jobs it runs. main.cc and
// tests run it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/channel/channel.h"
#include "worker_daemon/daemon/devices.h"
#include "worker_daemon/daemon/places/places.h"

namespace stagewright {

struct DaemonOptions {
  std::string planner = "127.0.0.1:7070";  // HOST:PORT
  ChannelSecurity security;                // How it speaks to the planner.
  std::string name;                        // Empty: the host's name.
  DevicesAsked devices;
  int threads_per_device = 1;  // Threads of one operator on a CPU device.
  // Most bytes of a job's tensors on a CPU device: what goes beyond fails as if memory had run out.
  // 0: the machine is the limit.
  Bytes memory_limit = 0;
  DeviceMemoryWay device_memory_way = DeviceMemoryWay::kAuto;
  // Names the machine: planning takes workers with equal ones to share it. Empty: the host's name.
  std::string host_address;
  std::string metrics_listen;  // HOST:PORT; empty: no metrics.
  PathRoots roots;             // What jobs may read and write; empty: anything.
  ArtifactOptions artifacts;   // Where weights are that jobs name by what is in them.
  std::string work_dir;        // Becomes the current directory; empty: stays.
  // Called once Fault() says something, on a thread of the daemon; null: nothing is.
  std::function<void()> on_fault;
};

// INVALID_ARGUMENT names the flag of an address that is none, or of a name that a planner refuses;
// errors of CheckChannel, CheckDevices and OpenArtifactStore. Looks at the options alone, and at
// nothing that they name.
absl::Status CheckOptions(const DaemonOptions& options);

class Daemon {
 public:
  // Errors of CheckOptions, OfferDevices and OpenChannel; INVALID_ARGUMENT for a working directory
  // that is none and errors of CheckRoots; UNAVAILABLE for a metrics port that is taken. A planner
  // that does not answer is tried again until it does.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const DaemonOptions& options);
  // With these devices instead of those that options.devices asks for.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const DaemonOptions& options, Offer offer);
  // Aborts its jobs and leaves. Waits for runs to end, which may wait for a file system.
  virtual ~Daemon() = default;

  // Has the planner take the worker's jobs elsewhere, without losing a step.
  virtual void BeginToLeave(const std::string& reason) = 0;
  // The planner has said that nothing is left, or there is neither a planner nor a job.
  virtual bool MayLeave() const = 0;
  // A device of which this process can make no use any more (device_fault.h), and with it the whole
  // process: it begins to leave by itself, after the failures of jobs were reported. OK if there is
  // none.
  virtual absl::Status Fault() const = 0;
  // Ends the stream to the planner and aborts all runs, without waiting for them.
  virtual void Stop() = 0;
  // Runs that were told to end and have not, a line; empty if there are none.
  virtual std::string Ending() const = 0;

  virtual std::string metrics_address() const = 0;  // Empty without metrics.
};

}  // namespace stagewright
