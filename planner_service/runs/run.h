// One attempt to run a job, of one generation: which workers take part and what they have said. A
// job that starts again gets another one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "planner_service/drift/stragglers.h"
#include "planner_service/jobs/job.h"
#include "planner_service/runs/checkpoint_progress.h"
#include "planner_service/runs/look_again.h"
#include "planner_service/runs/peer_gaps.h"
#include "planner_service/runs/recent_steps.h"
#include "planner_service/runs/running_median.h"
#include "planner_service/runs/step_collector.h"
#include "planner_service/runs/trace_window.h"

namespace stagewright {

// A worker has built its stages.
struct Preparation {
  int64_t first_step = 0;                    // Steps done before.
  int64_t total_steps = 0;                   // It counts.
  std::string resumed_from;                  // Checkpoint; may be empty.
  std::map<int32_t, std::string> addresses;  // The transports' addresses, by device.
  std::vector<std::string> warnings;
};

// A worker's devices are done; sums over workers are those of the job.
struct Completion {
  std::vector<std::string> shards;
  int64_t evaluated = 0;  // Samples whose loss they saw.
  EvaluationFigures evaluation;
  int64_t stopped_after = 0;  // Steps; 0: it did not stop early.
};

// How much of its part of the job's artifacts a worker has.
struct Fetched {
  Bytes done = 0;
  Bytes total = 0;
};

class Run {
 public:
  // The run of the job's present generation, on its devices. Those that the plan gives nothing to
  // do, which a job may have that an older planner has stored, are no part of it.
  Run(const Job& job, absl::Time now);

  // The indices of the devices of each worker that takes part.
  const std::map<std::string, std::vector<int32_t>>& workers() const { return workers_; }
  const std::vector<std::string>& devices() const { return devices_; }
  bool HasWorker(const std::string& name) const { return workers_.contains(name); }
  // Does what one has to do for all: manifests and the final checkpoint.
  const std::string& first_worker() const { return workers_.begin()->first; }

  // FAILED_PRECONDITION if workers disagree on the data, UNAVAILABLE if on where to resume: one may
  // have seen a checkpoint that another could not see yet.
  absl::Status Prepare(const std::string& worker, const Preparation& preparation);
  // Bytes of artifacts that a worker has of those that it needs. Whether it has more than before.
  bool NoteFetched(const std::string& worker, const Fetched& fetched);
  // All workers that fetch some, together.
  Fetched fetched() const;
  // Whether the worker has not been sent the graph in this run; it counts as sent from now on.
  bool SendsGraph(const std::string& worker) { return graph_sent_.insert(worker).second; }
  bool IsPrepared() const { return prepared_.size() == workers_.size(); }
  const std::map<int32_t, std::string>& addresses() const { return addresses_; }
  // Whether all are connected now; steps begin then.
  bool Connect(const std::string& worker, absl::Time now);
  // Workers that have not said what is waited for while the run starts.
  std::vector<std::string> Unanswered() const;

  absl::Time begun() const { return begun_; }
  int64_t first_step() const { return first_step_; }
  int64_t total_steps() const { return total_steps_; }  // 0: unknown, the planner was restarted.

  StepCollector& steps() { return steps_; }
  CheckpointProgress& checkpoints() { return checkpoints_; }
  const CheckpointProgress& checkpoints() const { return checkpoints_; }
  // Whether the step is newer than what is known; then its time is counted.
  bool IsNews(const StepFigures& step);
  Nanos median_step_time() const { return Nanos(step_times_.value()); }
  const RecentSteps& recent_steps() const { return recent_; }
  // The newest step that is known, as many as are done.
  int64_t newest_step() const { return newest_; }
  TraceWindow& traces() { return traces_; }

  // Whether all are done now, by this worker.
  bool Complete(const std::string& worker, const Completion& completion);
  bool IsComplete() const { return completed_.size() == workers_.size(); }
  // What all workers completed together, shards in order.
  const Completion& completion() const { return completion_; }

  // A worker is not heard of any more and waited for until then, or is back: false if it was not
  // lost.
  void Lose(const std::string& worker, absl::Time until) { lost_[worker] = until; }
  bool Regain(const std::string& worker) { return lost_.erase(worker) > 0; }
  std::set<std::string> lost() const;
  // A lost worker is back without its part of the run, and that part will not come.
  void NoteGone(const std::string& worker) { gone_.insert(worker); }
  const std::set<std::string>& gone() const { return gone_; }

  // Why a worker has given it up, which may be the echo of a loss; OK: none has.
  absl::Status given_up;
  PeerGaps peer_gaps;
  // Under an asynchronous plan: the newest step that all have agreed to empty the pipeline after;
  // 0: none.
  int64_t settled_flush = 0;
  Stragglers stragglers;  // What the windows of actions say so far.
  LookAgain look_again;
  bool recovered = false;                        // It was begun by a planner before this one.
  absl::Time deadline = absl::InfiniteFuture();  // When the job's present state must have ended.
  // That, or when the first of the lost workers is waited for no longer; gone ones are not waited
  // for.
  absl::Time due() const;
  // Has `move` change all of these times.
  template <typename Move>
  void MoveDeadlines(const Move& move) {
    move(deadline);
    for (auto& [worker, until] : lost_) move(until);
  }

 private:
  Run(const Job& job, const std::vector<int32_t>& devices, absl::Time now);

  std::vector<std::string> devices_;  // "worker/device", in the plan's order.
  std::map<std::string, std::vector<int32_t>> workers_;
  std::set<std::string> graph_sent_, prepared_, connected_, completed_, gone_;
  std::map<std::string, absl::Time> lost_;  // Until when each is waited for.
  std::map<std::string, Fetched> fetched_;
  std::map<int32_t, std::string> addresses_;
  absl::Time begun_;
  int64_t first_step_ = 0;
  int64_t total_steps_ = 0;
  int64_t newest_ = 0;  // Step that is known.
  StepCollector steps_;
  RunningMedian step_times_;
  RecentSteps recent_;
  TraceWindow traces_;
  CheckpointProgress checkpoints_;
  Completion completion_;
};

}  // namespace stagewright
