// The part of a job that runs on one device, from loading to the last step. What the daemon drives;
// no LibTorch in this header.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

class DeviceRunner {
 public:
  // Loads parameters and data and builds the stages: all that can be refused is refused here,
  // before any device starts. `transport` is that of the device and must outlive the runner; null
  // if PeersOf(job) is empty. It need not be connected yet.
  static absl::StatusOr<std::unique_ptr<DeviceRunner>> Create(DeviceJob job, Transport* transport);
  ~DeviceRunner();

  // What the user should know: layers whose result depends on the micro-batch.
  const std::vector<std::string>& warnings() const;

  // Runs all training steps, or fewer if evaluations say so (DeviceJob::patience). Call it once, on
  // a thread of its own, after the transport is connected. Errors of Executor::RunStep; then the
  // transport is aborted.
  absl::Status Run();

  // How many steps Run stopped after, early; 0 if it ran all.
  int64_t stopped_after() const;

  // One pass through the evaluation data, if there is any. Call it once, after Run. Apart from Run,
  // so that the trained parameters can be written before anything else may fail. Errors as of Run.
  absl::Status Evaluate();

  // Makes Run or Evaluate end with `status`, soon. Safe from any thread.
  void Abort(const absl::Status& status);

  // Writes the parameters that this device owns (see ownership.h) as a shard into `directory` and
  // returns its path; "" if it owns none. Not while Run or Evaluate is under way.
  absl::StatusOr<std::string> WriteShard(const std::string& directory) const;

 private:
  class Impl;
  explicit DeviceRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The number of threads that one operator may use; for the whole process. Set it once, at the
// start.
void SetIntraOpThreads(int threads);

}  // namespace stagewright
