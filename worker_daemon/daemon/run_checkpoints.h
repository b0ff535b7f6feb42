// What a run on this worker has to do with checkpoints besides writing the shares of its devices:
// where it resumes from, which steps are due, what the planner is told, and manifests.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/training/checkpoint_policy.h"
#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/checkpoint/checkpoint.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright {

class RunCheckpoints {
 public:
  using Reporter = std::function<void(v1::ConnectRequest)>;

  // `prepare` outlives it. `report` may be called from any thread until the end of its life.
  RunCheckpoints(const v1::Prepare& prepare, Reporter report);
  // Waits for all manifests that are to be written.
  ~RunCheckpoints();

  // Finds the checkpoint that the run resumes from, if it does, and tells it in `prepared`. Errors
  // of Checkpoint::Find; FAILED_PRECONDITION if the run begins anew where another has left
  // checkpoints.
  absl::Status Resume(v1::Prepared* prepared);

  // Completes the spec of a device: what to resume from, and when to save.
  void AddTo(DeviceJob& spec);

  // Saves after `step` steps, too. Devices that are further on already report that they skip it.
  // With `hold` the others then wait for GoOn.
  void Announce(int64_t step, bool hold);
  // No device waits any more.
  void GoOn();

  // Writes the manifest, prunes older checkpoints and reports, on the one thread that does this, in
  // the order of the calls. Without a graph the report is an error.
  void Complete(const v1::WriteManifest& message, std::shared_ptr<const Graph> graph);
  // Returns when all of them are reported.
  void AwaitCompleted();

 private:
  // A checkpoint whose shares are written.
  struct Order {
    v1::WriteManifest message;
    std::shared_ptr<const Graph> graph;
  };

  bool IsDue(DeviceId device, int64_t steps);
  void AwaitGoOn(DeviceId device);
  void Loop();
  void Report(DeviceId device, const CheckpointReport& report, bool too_late);
  void DoComplete(const v1::WriteManifest& message, const Graph& graph);
  void ReportCompleted(const v1::WriteManifest& message, const absl::Status& status);

  const v1::Prepare& prepare_;
  const Reporter report_;
  const CheckpointPolicy policy_;
  const std::string root_;
  std::shared_ptr<const Checkpoint> resume_;
  absl::Mutex mutex_;
  std::set<int64_t> announced_ ABSL_GUARDED_BY(mutex_);
  std::map<DeviceId, int64_t> reached_ ABSL_GUARDED_BY(mutex_);  // Steps each device has done.
  int64_t hold_after_ ABSL_GUARDED_BY(mutex_) = 0;               // Steps; 0: none.
  std::set<DeviceId> holding_ ABSL_GUARDED_BY(mutex_);
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);  // The first is being written.
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);  // From the first order to the end of life.
};

}  // namespace stagewright
