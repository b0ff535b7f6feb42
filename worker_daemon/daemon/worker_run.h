// One generation of a job on this worker: its devices' transports, runners and threads.
//
// Commands come from the planner's stream and are carried out on the run's own thread, in order, so
// that the stream is never held up. Abort is carried out at once, from any thread. What happens is
// told through `report`.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/artifacts/tensor_part.h"
#include "common/base/status.h"
#include "common/training/training_spec.h"
#include "common/wire/step_history.h"
#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/daemon/devices.h"
#include "worker_daemon/daemon/metrics.h"
#include "worker_daemon/daemon/places/places.h"
#include "worker_daemon/daemon/run_checkpoints.h"
#include "worker_daemon/daemon/run_traces.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/executor/device_runner.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright {

class WorkerRun {
 public:
  using Reporter = std::function<void(v1::ConnectRequest)>;

  // A device of this worker by name; nothing if it has none of that name.
  using DeviceFinder = std::function<std::optional<OfferedDevice>(const std::string&)>;

  // One of its devices is of no use to this process any more (device_fault.h).
  using FaultReporter = std::function<void(const absl::Status&)>;

  // Begins to prepare. `metrics` may be null. A job that would leave the `places` fails. `on_fault`
  // may be null; it is called after the failure was reported, by threads of the run, maybe again.
  WorkerRun(v1::Prepare prepare, DeviceFinder find_device, Reporter report, WorkerMetrics* metrics,
            Places places = {}, FaultReporter on_fault = nullptr);
  // Aborts if the run has not ended, waits for its threads, and removes the shards of its devices
  // unless they are all trained: those that were not merged are the only copy of the result.
  ~WorkerRun();

  const std::string& job() const { return prepare_.job(); }
  int64_t generation() const { return prepare_.generation(); }
  // Its devices on this worker.
  std::vector<std::string> device_names() const {
    return {prepare_.device_names().begin(), prepare_.device_names().end()};
  }

  void Connect(v1::ConnectPeers message);
  // The first call of each counts: the planner repeats them where a stream broke.
  void Start();
  void Merge(v1::Merge message);
  // At once, from any thread, after Start.
  void CheckpointAfter(const v1::CheckpointAfter& message) { checkpoints_.Announce(message); }
  void GoOn() { checkpoints_.GoOn(); }
  int64_t flush_after() const { return checkpoints_.flush_after(); }
  void TraceSteps(const v1::TraceSteps& message) { traces_.Ask(message); }
  // Refused while the run is not prepared.
  void WriteManifest(const v1::WriteManifest& message);
  void Abort(const std::string& reason);

  // Tells the planner again what it may have missed: the steps so far; these, shares, last report.
  void RepeatSteps();
  void RepeatLastReport();

 private:
  struct Device {
    DeviceId id;
    std::string name;
    std::unique_ptr<RoutingTransport> transport;  // Null if the device exchanges nothing.
    OfferedDevice offered;
    std::vector<int> peers, neighbours;         // See device_job.h.
    std::vector<std::vector<int>> collectives;  // Equal for all devices of the job.
    std::unique_ptr<DeviceRunner> runner;
  };

  void Enqueue(std::function<absl::Status()> command);
  void Loop();
  // What the job failed to be prepared for; if a path is wrong, by its field.
  absl::Status InFields(const absl::Status& failed);
  absl::Status DoPrepare();
  // Whether what the run waits for is not wanted any more.
  bool IsAborted();
  // Those that have work, with the weights that they read.
  absl::Status AddDevices(DeviceJob base, v1::Prepared& prepared);
  // Tells the planner now and then how much of the weights is here.
  FetchProgress TellFetched() const;
  absl::Status AddDevice(const DeviceJob& base, int32_t index, const std::string& name);
  absl::Status DoConnect(const v1::ConnectPeers& message);
  absl::Status DoRun();
  // Trains, writes the shard and then evaluates, so that no evaluation can lose what was trained.
  absl::StatusOr<std::string> RunDevice(Device& device);
  absl::Status DoMerge(const v1::Merge& message);
  std::string ShardDirectory() const;
  void RemoveShards();

  void OnStep(const Device& device, StepReport report);
  // Adds a step to those that StepsSoFar tells.
  void Note(const v1::Progress& progress);
  void OnEvaluation(const EvaluationReport& report);
  // FAILED_PRECONDITION if one of its devices is of no use any more.
  absl::Status Fault() const;
  void Fail(const absl::Status& cause);
  // Sends a message and, if `remember`, keeps it for RepeatLastReport.
  void Report(v1::ConnectRequest message, bool remember);
  v1::ConnectRequest StepsSoFar() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const v1::Prepare prepare_;
  const Places places_;
  const DeviceFinder find_device_;
  const Reporter report_;
  WorkerMetrics* const metrics_;
  const FaultReporter on_fault_;
  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<const Program> program_;
  TrainingSpec training_;
  int64_t total_steps_ = 0;
  int64_t first_step_ = 0;

  absl::Mutex mutex_;
  RunCheckpoints checkpoints_;
  RunTraces traces_;
  std::deque<std::function<absl::Status()>> commands_ ABSL_GUARDED_BY(mutex_);
  // Grows while preparing only.
  std::vector<std::unique_ptr<Device>> devices_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Graph> prepared_graph_ ABSL_GUARDED_BY(mutex_);  // Null before Prepared.
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false, merges_ ABSL_GUARDED_BY(mutex_) = false;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  size_t trained_ ABSL_GUARDED_BY(mutex_) = 0;  // Devices whose shard is written.
  EvaluationReport evaluation_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, StepHistory> steps_ ABSL_GUARDED_BY(mutex_);  // By device, what it saw of them.
  std::optional<v1::ConnectRequest> last_report_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace stagewright
