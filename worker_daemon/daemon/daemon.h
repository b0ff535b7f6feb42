// The worker as one object: devices, the link to the planner, and the jobs it runs. main.cc and
// tests run it.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/channel/channel.h"
#include "worker_daemon/daemon/devices.h"
#include "worker_daemon/data/path_roots.h"

namespace stagewright {

struct DaemonOptions {
  std::string planner = "127.0.0.1:7070";  // HOST:PORT
  ChannelSecurity security;                // How it speaks to the planner.
  std::string name;                        // Empty: the host's name.
  std::string devices = "cpu:1";           // "cpu:N", "cuda:all", "cuda:0,2"
  int threads_per_device = 1;              // Threads of one operator on a CPU device.
  // 0: CPU devices share half of the machine's memory; GPUs have theirs.
  Bytes memory_per_device = 0;
  // Most bytes of a job's tensors on a CPU device: what goes beyond fails as if memory had run out.
  // 0: the machine is the limit.
  Bytes memory_limit = 0;
  DeviceMemoryWay device_memory_way = DeviceMemoryWay::kAuto;
  // Names the machine: planning takes workers with equal ones to share it. Empty: the host's name.
  std::string host_address;
  std::string metrics_listen;  // HOST:PORT; empty: no metrics.
  PathRoots roots;             // What jobs may read and write; empty: anything.
  std::string work_dir;        // Becomes the current directory; empty: stays.
};

class Daemon {
 public:
  // INVALID_ARGUMENT for devices that do not exist (names them), UNAVAILABLE for a metrics port
  // that is taken; errors of OpenChannel. A planner that does not answer is tried again until it
  // does.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const DaemonOptions& options);
  // Aborts its jobs and leaves. Waits for runs to end, which may wait for a file system.
  virtual ~Daemon() = default;

  // Has the planner take the worker's jobs elsewhere, without losing a step.
  virtual void BeginToLeave(const std::string& reason) = 0;
  // The planner has said that nothing is left, or there is neither a planner nor a job.
  virtual bool MayLeave() const = 0;
  // Ends the stream to the planner and aborts all runs, without waiting for them.
  virtual void Stop() = 0;
  // Runs that were told to end and have not, a line; empty if there are none.
  virtual std::string Ending() const = 0;

  virtual std::string metrics_address() const = 0;  // Empty without metrics.
};

}  // namespace stagewright
