// The door to jobs: PENDING -> PLANNING -> WAITING_FOR_DEVICES -> STARTING -> RUNNING ->
// SUCCEEDED | FAILED | CANCELLED (job_life.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/jobs/job_watches.h"
#include "planner_service/jobs/planning_pool.h"
#include "planner_service/lifecycle/job_life.h"
#include "planner_service/profiles/profile_store.h"
#include "planner_service/registry/worker_registry.h"
#include "planner_service/store/store.h"
#include "stagewright/v1/job_service.pb.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

struct Submission;  // What Submit is given.

// Thread-safe. What is pointed to outlives it.
class JobManager {
 public:
  JobManager(Store* store, ProfileStore* profiles, WorkerRegistry* registry, PlanningPool* pool,
             JobManagerOptions options);
  ~JobManager();

  // Loads jobs from the store. Unstarted ones continue; running ones wait for their workers.
  absl::Status Recover();
  // What it found damaged, a line each.
  std::vector<std::string> notes() const;

  // INVALID_ARGUMENT names the field, UNAVAILABLE a device that a worker may yet bring back. An
  // equal request_id returns the job it made before, ALREADY_EXISTS if that was of another spec;
  // FAILED_PRECONDITION if an unfinished job has the output path. ABORTED as PlanCheck::Holds if
  // the plan that the job brings was made from a `basis` that holds no more when it is taken. Here
  // and in Cancel errors of CheckWritable. `client` is its address, for the log.
  absl::StatusOr<v1::Job> Submit(const v1::JobSpec& spec, const std::string& request_id,
                                 const std::string& client = "",
                                 const v1::PlanBasis* basis = nullptr);
  // What Submit would refuse it for now; records nothing.
  absl::Status Validate(const v1::JobSpec& spec, const std::string& request_id,
                        const v1::PlanBasis* basis = nullptr) const;
  absl::StatusOr<v1::Job> Get(const std::string& name) const;
  // Newest first, without plans. INVALID_ARGUMENT for a page token of other filters.
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request) const;
  absl::StatusOr<v1::Job> Cancel(const std::string& name, const std::string& request_id = "");
  absl::Status Delete(const std::string& name);
  // NOT_FOUND if it is not connected, INVALID_ARGUMENT without an availability.
  absl::StatusOr<v1::Worker> SetAvailability(const v1::SetWorkerAvailabilityRequest& request);
  // Plans a running job anew and then calls `done` once, without locks held, on another thread or
  // at once: NOT_FOUND, the errors of BeginReplan and EndReplan, INVALID_ARGUMENT for a negative
  // limit, RESOURCE_EXHAUSTED if too many wait.
  void Replan(const v1::ReplanJobRequest& request,
              std::function<void(absl::StatusOr<v1::ReplanJobResponse>)> done);
  absl::StatusOr<v1::GetJobTraceResponse> Trace(const std::string& name) const;
  // The newest lines about it that came later (job_log.h).
  absl::StatusOr<v1::ListJobLogsResponse> Logs(const std::string& name, int64_t after) const;
  // Ascending; StepHistory says which steps are kept.
  absl::StatusOr<v1::ListJobStepsResponse> Steps(const std::string& name, int64_t after_step) const;

  // Calls `watcher` with the present job soon and with newer versions, until Unwatch
  // (job_watches.h). The watcher must not block or call back. After Unwatch has returned it is not
  // called any more. OUT_OF_RANGE if the job has not come to `after_version`, which was seen of it.
  absl::StatusOr<int64_t> Watch(const std::string& name, JobWatches::Watcher watcher,
                                int64_t after_version = 0);
  void Unwatch(int64_t id);
  int64_t watchers() const { return watches_.watchers(); }

  // Those that are connected and, if asked for, what happened to workers, as of one moment.
  v1::ListWorkersResponse Workers(bool events) const;

  // OK, or the store's error: what happens to jobs is not shown, and no job is taken or cancelled,
  // until the state can be written again. Also after a call that it failed while no job waits for
  // it.
  absl::Status CheckWritable() const;

  // The planner is going away: from now on a lost worker does not fail its job, which runs on and
  // is found running after a restart. Searches end, so that no call waits for one.
  void Suspend();

  // Adds a worker to the registry, welcomes it, lets it carry on with jobs it still runs and tells
  // it to stop what is over. Errors and result of WorkerRegistry::Register.
  absl::StatusOr<int64_t> Register(const v1::Register& message, const WorkerRegistry::Sink& sink);
  // The stream of that session has ended: the worker leaves the registry. False, and nothing else,
  // if another stream of it has registered since, or it was silent for too long.
  bool OnLost(const std::string& worker, int64_t session, const std::string& why);
  void OnMessage(const std::string& worker, const v1::ConnectRequest& message);

  // Time passes: starting jobs time out, lost workers are noticed. Called twice a second. After a
  // long pause the planner itself did not run or wait for its store: most of it does not count.
  void Tick(absl::Time now);

 private:
  // Makes the job the one by number if its plan goes so. Its errors of PlanCheck, FromProto, Check
  // and CheckDevices, in this order; of a request that is known those of the spec alone.
  absl::Status Place(Submission& submission) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<ReplanProblem> BeginReplan(const v1::ReplanJobRequest& request);
  // The same options; watchers hear of changes, too, and events of workers are kept.
  JobManagerOptions Watched(JobManagerOptions options);
  // A job as it is now; one that has ended with what only the store has of it, which is read
  // without the lock. What it is shown as is made of the copy, without the lock, too. NOT_FOUND.
  absl::StatusOr<Job> CopyOf(const std::string& name) const;
  // As Trace, in the order in which it was reported.
  absl::StatusOr<v1::GetJobTraceResponse> RecordedTrace(const std::string& name) const;
  // If the planner stood still since the last tick, which was to come twice a second, most of that
  // does not count, for nobody: called before a time is compared with the clock or set by it.
  void CatchUp(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The registry has forgotten the worker under this lock. `silent`: as JobLife::OnLost.
  void NoteLost(const std::string& worker, const std::string& why, bool silent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteWorker(EventKind kind, const std::string& worker, const std::string& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountSearch(const JobRequest& request, const absl::Status& status,
                   absl::Duration took) const;
  // Hands the job to the pool.
  absl::Status StartPlanner(const Job& job, std::shared_ptr<const Cluster> cluster,
                            std::shared_ptr<const OperatorProfile> profile,
                            std::shared_ptr<SearchContext> context)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same to a thread of low priority.
  absl::Status StartAhead(const Job& job, std::shared_ptr<const Cluster> cluster,
                          std::shared_ptr<const OperatorProfile> profile,
                          std::shared_ptr<SearchContext> context)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StartReplanner(ReplanProblem given) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ProfileStore* const profiles_;
  WorkerRegistry* const registry_;
  PlanningPool* const pool_;
  const JobManagerOptions options_;

  mutable absl::Mutex mutex_;
  JobLife life_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> worker_events_ ABSL_GUARDED_BY(mutex_);
  absl::Time ticked_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // Infinite: not yet.
  absl::Time workers_back_by_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time stood_still_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // Last, until then.
  int planning_ ABSL_GUARDED_BY(mutex_) = 0;  // Tasks of the pool that will call back.
  JobWatches watches_;                        // Asks for jobs under the lock, tells without it.
  PlanningPool ahead_pool_{/*threads=*/1, /*queue_limit=*/1, PlanningPool::kNicest};
};

}  // namespace stagewright
