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
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/training/checkpoint_policy.h"
#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/checkpoint/checkpoint.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/step/flush_steps.h"

namespace stagewright {

// The job's name for its files, which no other job has.
std::string RunOf(const v1::Prepare& prepare);

class RunCheckpoints {
 public:
  using Reporter = std::function<void(v1::ConnectRequest)>;

  // `prepare` outlives it. `report` may be called from any thread until the end of its life.
  RunCheckpoints(const v1::Prepare& prepare, Reporter report);
  // Waits for all manifests that are to be written.
  ~RunCheckpoints();

  // Before Resume: completes a checkpoint of an earlier generation, of the same graph, whose shares
  // are written and whose manifest is not, if the planner knows of one. Where that fails the run
  // resumes from an older one; a warning is logged.
  void CompleteEarlier(const Graph& graph);
  // Finds the checkpoint that the run resumes from, if it does, and tells it in `prepared`. Errors
  // of Checkpoint::Find; FAILED_PRECONDITION if the run begins anew where another job has left
  // something, unless it is to overwrite that, or where one that has not ended writes.
  absl::Status Resume(v1::Prepared* prepared);
  // After Resume: from now on the output directory is this generation's of the job. Errors of
  // TakeOutput; CANCELLED after Abort.
  absl::Status TakeOutput();
  // FAILED_PRECONDITION if it is not any more.
  absl::Status CheckOwned() const;
  // When all workers have resumed and no device has saved yet, or all devices have ended: removes
  // checkpoints that are unfinished, which take room and would do so for long, but for the one
  // after so many steps, and shards that earlier runs have not merged (DropShards). Where that
  // fails, a warning is logged.
  void DropUnfinished(int64_t kept);

  // Completes the spec of a device: what to resume from, and when to save.
  void AddTo(DeviceJob& spec);

  // Saves after so many steps, too, as the message says. Devices that are further on already report
  // that they skip it; those of an asynchronous program answer an offer (flush_steps.h).
  void Announce(const v1::CheckpointAfter& message);
  // No device waits any more, and no offer is open.
  void GoOn();
  // The run is over: none waits from now on either, whatever is announced, and none begins to
  // write a share.
  void Abort();
  // The newest step that an asynchronous program is flushed after by agreement; 0: none.
  int64_t flush_after() const { return flushes_.settled(); }

  // Tells the two newest shares of each device once more, and those that it skipped: the newest may
  // be of a checkpoint that a worker that died has not written, the one before is of one that it
  // has.
  void RepeatShares();

  // Writes the manifest, prunes older checkpoints and reports, on the one thread that does this, in
  // the order of the calls. Without a graph the report is an error. One that is written already, or
  // has failed, is reported only.
  void Complete(const v1::WriteManifest& message, std::shared_ptr<const Graph> graph);
  // Returns when all of them are reported.
  void AwaitCompleted();

 private:
  // A checkpoint whose shares are written.
  struct Order {
    v1::WriteManifest message;
    std::shared_ptr<const Graph> graph;
  };

  absl::Status CheckNotAborted();
  absl::Status CheckNotInUse() const;
  absl::Status MayWrite();
  // Removes what there is of checkpoints that failed: they can never be whole, and their room may
  // be what the next one lacks. Where others still write to one of the newest, the next call does
  // it.
  void DropFailed();
  bool IsDue(DeviceId device, int64_t steps);
  void AwaitGoOn(DeviceId device);
  void Loop();
  void Report(DeviceId device, const CheckpointReport& report, bool too_late);
  absl::Status CompleteShares(const v1::WriteManifest& message, const Graph& graph);
  void DoComplete(const v1::WriteManifest& message, const Graph& graph);
  void ReportCompleted(const v1::WriteManifest& message, const absl::Status& status);

  const v1::Prepare& prepare_;
  const Reporter report_;
  const CheckpointPolicy policy_;
  const bool await_written_;  // Devices go on only when a checkpoint is written.
  const std::string root_;
  const std::string run_;
  std::shared_ptr<const Checkpoint> resume_;
  bool goes_on_ = false;  // From a checkpoint in its own output directory.
  FlushSteps flushes_;    // Used by asynchronous programs.
  absl::Mutex mutex_;
  std::set<int64_t> announced_ ABSL_GUARDED_BY(mutex_);
  std::map<DeviceId, int64_t> reached_ ABSL_GUARDED_BY(mutex_);  // Steps each device has done.
  int64_t hold_after_ ABSL_GUARDED_BY(mutex_) = 0;               // Steps; 0: none.
  std::set<DeviceId> holding_ ABSL_GUARDED_BY(mutex_);
  // The newest reports of each device, by step. One that is skipped may be told before that which
  // it is skipped for, and does not stand for it.
  std::map<std::pair<DeviceId, bool>, std::map<int64_t, v1::ConnectRequest>> shares_
      ABSL_GUARDED_BY(mutex_);
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);  // The first is being written.
  int64_t written_ ABSL_GUARDED_BY(mutex_) = 0;       // Step of the newest manifest; 0: none.
  // Steps after which a device here has not saved and will not, or no manifest could be written.
  std::set<int64_t> failed_ ABSL_GUARDED_BY(mutex_);
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);  // From the first order to the end of life.
};

}  // namespace stagewright
