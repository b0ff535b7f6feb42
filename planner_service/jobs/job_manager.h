// Jobs and their life: PENDING -> PLANNING -> WAITING_FOR_DEVICES -> STARTING -> RUNNING ->
// SUCCEEDED | FAILED | CANCELLED (design section 5). Every transition is in the store before it is
// acted on or seen.
//
// Starting is all-or-nothing: every worker prepares, then every worker connects, then all start;
// one refusal aborts all. Messages carry the job's generation, and those of an older one are
// ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/wire/job_state.h"
#include "common/wire/step_history.h"
#include "planner_service/front_door/planner_table.h"
#include "planner_service/jobs/planning_pool.h"
#include "planner_service/jobs/running_median.h"
#include "planner_service/planner/planner.h"
#include "planner_service/registry/worker_registry.h"
#include "planner_service/store/store.h"
#include "stagewright/v1/job_service.pb.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

struct JobManagerOptions {
  absl::Duration worker_timeout = absl::Seconds(10);     // A worker silent for longer is lost.
  absl::Duration starting_timeout = absl::Seconds(120);  // From Prepare to Start.
  absl::Duration planning_timeout = absl::Seconds(60);
  // After a restart, the workers of a running job have this long to come back. Longer than a worker
  // waits between two attempts to connect.
  absl::Duration recovery_timeout = absl::Seconds(30);
  std::string default_planner = kDefaultPlanner;
  // Called after every change of a job, in order, without locks held by the caller that matter;
  // must not call back.
  std::function<void(const v1::Job&)> on_change;
};

// The 7 of "jobs/7"; -1 of other names.
int64_t JobNumber(absl::string_view name);
// The job's stages compute, whether or not all their workers are heard of at the moment.
bool Runs(v1::JobState state);
// Workers have devices, threads and memory for the job.
bool OnWorkers(v1::JobState state);

// Thread-safe. The store, registry and pool outlive it.
class JobManager {
 public:
  using Watcher = std::function<void(std::shared_ptr<const v1::Job>)>;

  JobManager(Store* store, WorkerRegistry* registry, PlanningPool* pool, JobManagerOptions options);
  ~JobManager();

  // Loads jobs from the store. Unstarted ones continue; running ones wait for their workers to come
  // back.
  absl::Status Recover();

  // INVALID_ARGUMENT names the field. An equal request_id returns the job it made before.
  absl::StatusOr<v1::Job> Submit(const v1::JobSpec& spec, const std::string& request_id);
  absl::StatusOr<v1::Job> Get(const std::string& name) const;
  // Newest first, without plans. INVALID_ARGUMENT for a page token that is not ours.
  absl::StatusOr<v1::ListJobsResponse> List(int page_size, const std::string& page_token) const;
  absl::StatusOr<v1::Job> Cancel(const std::string& name);
  absl::StatusOr<v1::GetJobTraceResponse> Trace(const std::string& name) const;
  // Ascending; StepHistory says which steps are kept.
  absl::StatusOr<v1::ListJobStepsResponse> Steps(const std::string& name, int64_t after_step) const;

  // Calls `watcher` with the present job at once and after each change, until Unwatch. The watcher
  // must not block or call back. After Unwatch has returned it is not called any more.
  absl::StatusOr<int64_t> Watch(const std::string& name, Watcher watcher);
  void Unwatch(int64_t id);

  // The planner is going away: from now on a lost worker does not fail its job, which runs on and
  // is found running after a restart.
  void Suspend();

  // What workers do.
  // Adds a worker to the registry, welcomes it, lets it carry on with jobs it still runs and tells
  // it to stop what is over. Errors and result of WorkerRegistry::Register.
  absl::StatusOr<int64_t> Register(const v1::Register& message, const WorkerRegistry::Sink& sink);
  void OnLost(const std::string& worker, const std::string& why);
  void OnMessage(const std::string& worker, const v1::ConnectRequest& message);

  // Time passes: starting jobs time out, lost workers are noticed. Called about once a second.
  void Tick(absl::Time now);

 private:
  struct StepReport {
    std::set<int32_t> devices;  // That have reported it.
    v1::JobStep figures;        // Of these devices together.
    double loss_scale = 0;
    std::optional<v1::EvaluationResult> evaluation;  // That followed the step.
  };
  // What devices have written of one checkpoint.
  struct CheckpointShares {
    std::set<int32_t> devices;
    std::vector<v1::CheckpointFile> files;
    std::string error;  // The first one's.
  };
  struct CheckpointProgress {
    std::map<int64_t, CheckpointShares> shares;  // By step.
    absl::Time last = absl::InfinitePast();      // When the last one was written or the run began.
    int64_t announced = 0;                       // Step; 0: none.
    int doublings = 0;  // Of how far ahead announcements are, because some came too late.
  };
  // A job and what is only in memory about its present run.
  struct Record {
    v1::Job job;  // `spec` with its graph.
    v1::Cluster cluster;
    v1::Program evaluation_program;
    std::vector<v1::Program> length_evaluation_programs;
    std::map<std::string, std::vector<int32_t>> worker_devices;  // Indices in `cluster`.
    std::set<std::string> prepared, connected, finished, lost;
    std::map<int32_t, std::string> addresses;
    std::vector<std::string> shards;
    int64_t total_steps = 0;
    int64_t first_step = 0;               // Steps done before the present run.
    std::map<int64_t, StepReport> steps;  // Not yet reported by all devices.
    int64_t reported = 0;                 // The last that was told to watchers, of this run.
    StepHistory history;                  // Of the whole job; once it has ended, in the store only.
    absl::Time write_steps = absl::InfiniteFuture();  // When the store is to have it.
    RunningMedian step_times;
    int64_t evaluated = 0, predicted = 0, correct = 0;
    double evaluation_loss = 0;
    int64_t stopped_after = 0;  // Steps; 0: it did not stop early.
    CheckpointProgress checkpoints;
    bool given_up = false;  // Recovering, and a worker has already given the run up.
    v1::GetJobTraceResponse trace;
    absl::Time deadline = absl::InfiniteFuture();  // Of the present state.
    std::shared_ptr<SearchContext> planning;       // Set while planning.
  };
  struct PlanResult;

  Record* Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The present run of a job that `worker` takes part in; null: what it says is of no concern.
  Record* FindRun(const std::string& worker, const std::string& name, int64_t generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the job with its new state, then tells everybody. A store that fails makes the job fail
  // in memory.
  void Transition(Record& record, v1::JobState state, const std::string& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Persist(Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Announce(Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Moves jobs on, in the order they came.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartPlanning(Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnPlanned(const std::string& name, int64_t generation, PlanResult result);
  // A lost worker is back with its part of the job. False if that is not possible.
  bool Resume(Record& record, const std::string& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TryStart(Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendPrepare(Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Handle(const std::string& worker, const v1::Prepared& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(const std::string& worker, const v1::Connected& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(const std::string& worker, const v1::Progress& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(const std::string& worker, const v1::Finished& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(const std::string& worker, const v1::Merged& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(const std::string& worker, const v1::Failed& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(const std::string& worker, const v1::ShardWritten& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(const std::string& worker, const v1::CheckpointWritten& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(const std::string& worker, const v1::StepsSoFar& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells all workers of the step after which to save, if it is time.
  void AnnounceCheckpoint(Record& record, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WarnOfCheckpoint(Record& record, int64_t step, const std::string& error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayRestart(const Record& record) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends a run that lost a worker: the job starts again, or fails with the message.
  void FailOrRestart(Record& record, const std::string& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a failure may be the echo of a loss that is not known yet; then the job waits for it.
  bool AwaitLoss(Record& record, const v1::Failed& failure, const std::string& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The step that a device has told of, if all have; it is then in the history.
  static std::optional<StepReport> TakeWhole(Record& record, int64_t step);
  // Tells watchers of the step if it is newer than what they know.
  void ReportStep(Record& record, const StepReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the history, if it has changed since. A failure is tried again.
  void WriteSteps(Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static Mutation StepsMutation(const Record& record);
  // The history of the job of that name as it was written last; empty if it never was.
  absl::Status ReadSteps(Record& record) const;
  // Ends a job: tells its workers, frees its devices, lets others go on.
  void End(Record& record, v1::JobState state, const std::string& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells a worker to stop the job's present run, with the job's message as the reason.
  static v1::ConnectResponse AbortOf(const v1::Job& job);
  void SendToAll(const Record& record, const v1::ConnectResponse& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store* const store_;
  WorkerRegistry* const registry_;
  PlanningPool* const pool_;
  const JobManagerOptions options_;

  mutable absl::Mutex mutex_;
  std::map<int64_t, Record> jobs_ ABSL_GUARDED_BY(mutex_);               // By number.
  std::map<std::string, std::string> requests_ ABSL_GUARDED_BY(mutex_);  // request_id -> job name.
  struct Subscription {
    std::string job;
    Watcher watcher;
  };
  std::map<int64_t, Subscription> watches_ ABSL_GUARDED_BY(mutex_);
  int64_t next_job_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t next_watch_ ABSL_GUARDED_BY(mutex_) = 1;
  int planning_ ABSL_GUARDED_BY(mutex_) = 0;  // Pool tasks that will call back.
  bool suspended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagewright
