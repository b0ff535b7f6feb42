// What becomes of jobs: their transitions, and what each asks of workers. Every transition is in
// the store before it is acted on or seen.
//
// Starting is all-or-nothing: every worker prepares, then every worker connects, then all start;
// one refusal aborts all. Messages carry the job's generation, and those of an older one are
// ignored.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/jobs/job.h"
#include "planner_service/jobs/planned_job.h"
#include "planner_service/jobs/request_book.h"
#include "planner_service/lifecycle/job_manager_options.h"
#include "planner_service/lifecycle/job_planners.h"
#include "planner_service/lifecycle/job_queue.h"
#include "planner_service/planner/planner.h"
#include "planner_service/queue/place_jobs.h"
#include "planner_service/records/job_records.h"
#include "planner_service/registry/worker_registry.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Not thread-safe: JobManager's, under its lock.
class JobLife {
 public:
  // What is pointed to outlives it.
  JobLife(Store* store, ProfileStore* profiles, WorkerRegistry* registry,
          const JobManagerOptions& options, JobPlanners planners);

  const JobRecords& records() const { return records_; }
  const JobStore& store() const { return records_.store(); }
  // What Recover found damaged, a line each.
  const std::vector<std::string>& notes() const { return notes_; }

  // JobManager says what these do.
  absl::Status Recover();
  absl::Status CheckWritable() const;
  // The job's number. `job` has spec and request alone. REQUIRES: Check(*job.request).
  absl::StatusOr<int64_t> Submit(Job job, const std::string& request_id, const std::string& digest,
                                 const std::string& client);
  bool Knows(const std::string& request_id) const { return requests_.Knows(request_id); }
  // What Submit would refuse it for now.
  absl::Status MaySubmit(const Job& job, const std::string& id, const std::string& digest) const;
  absl::Status Cancel(int64_t job, const std::string& request_id);
  absl::Status Delete(int64_t job);
  absl::StatusOr<v1::Worker> SetAvailability(const std::string& worker,
                                             v1::WorkerAvailability availability);
  // What a better plan for a running job is to be sought by, at most for `limit`; REQUIRES: the job
  // is known. Errors of ProblemOf.
  absl::StatusOr<ReplanProblem> BeginReplan(int64_t job, absl::Duration limit);
  // What came of it; with `apply` a better plan is carried out. ABORTED if the job changed
  // meanwhile, FAILED_PRECONDITION if it ends before it could change over.
  absl::StatusOr<v1::ReplanJobResponse> EndReplan(const ReplanProblem& problem,
                                                  absl::StatusOr<ReplanResult> result, bool apply);
  // What came of the search for a plan on more devices.
  void EndGrowth(const ReplanProblem& problem, absl::StatusOr<ReplanResult> result);
  void Suspend();
  // From now on no job moves on by itself, and nobody waits for a search.
  void Freeze();
  absl::StatusOr<int64_t> Register(const v1::Register& message, const WorkerRegistry::Sink& sink);
  // `silent`: its stream has not ended, it is not heard of.
  void OnLost(const std::string& worker, const std::string& why, bool silent);
  void OnMessage(const std::string& worker, const v1::ConnectRequest& message);
  void Tick(absl::Time now);
  void Forgive(absl::Duration stood_still, absl::Time now);
  // The plan that is made from the source, if the job may need it again.
  void KeepPlan(int64_t job, PlanSource source, std::shared_ptr<const JobPlan> plan);
  // What came of a search ahead; null: there is no plan.
  void OnPlannedAhead(int64_t job, const std::shared_ptr<SearchContext>& context, PlanSource source,
                      std::shared_ptr<const JobPlan> plan);
  // The answer for the job in that generation, which is dropped unless it is still being planned.
  void OnPlanned(int64_t job, int64_t generation, absl::StatusOr<PlannedJob> plan);

 private:
  void RecoverEnded(std::vector<EndedJob> ended);
  absl::Status RecoverJob(v1::Job stored, JobParts::Blobs& blobs);
  absl::Status ForgetDoubtful();
  void ForgetOld(absl::Time now);
  // Moves jobs on that may go on (job_queue.cc).
  void Advance();
  JobQueue Queue() const;
  // Gives free devices to jobs that wait, tells the others why they do, and has jobs preempted.
  void ServeQueue();
  void KeepWaiting(JobRecord& record, const QueuedJob& queued, const std::string& why);
  // Has the job planned for so many free devices, which it holds from now on; with a plan that was
  // made ahead it starts at once. False if it ended.
  bool Plan(JobRecord& record, const StartingJob& start, const JobQueue& queue);
  void PlanAgain(JobRecord& record, const std::string& why);
  void TryStart(JobRecord& record);
  // Has plans sought for what losses would leave of jobs, one at a time (planning_ahead.cc).
  void PlanAhead();
  void PlanAheadOf(JobRecord& record);
  // Has a plan sought for a job that could have more devices, one at a time (job_growth.cc).
  void SeekGrowth();
  bool SeekGrowthOf(JobRecord& record, const JobQueue& queue);
  // All devices have stopped, and their state is in this checkpoint.
  void ChangeOver(JobRecord& record, const std::string& checkpoint);
  // Ends a job: tells its workers, frees its devices, lets others go on.
  void End(JobRecord& record, JobState state, const std::string& message);
  // Ends the run, if there is one: its devices are free when workers have ended it, but for `keep`.
  void EndRun(JobRecord& record, const v1::ConnectResponse& message,
              const std::vector<std::string>& keep = {});
  // Ends a run that may have lost a worker: the job starts again, or fails with the message.
  void FailOrRestart(JobRecord& record, const std::string& cause, const std::string& message);
  // Ends the run; the job is planned anew.
  void PutBack(JobRecord& record, const v1::ConnectResponse& abort, const std::string& message);
  // A lost worker is back with its part of the job. False if that is not possible.
  bool Resume(JobRecord& record, const std::string& worker);
  // A lost worker is back: once all are, the run goes on or is over.
  void AfterReturn(JobRecord& record);
  // The clock, as far as Tick has moved it at least.
  absl::Time Now() const;
  void OnLate(JobRecord& record);
  void OnPrepared(JobRecord& record, const std::string& worker, const v1::Prepared& message);
  void OnConnected(JobRecord& record, const std::string& worker);
  void OnMerged(JobRecord& record, const v1::Merged& message);
  void OnShard(JobRecord& record, const v1::ShardWritten& message);
  void OnCheckpoint(JobRecord& record, const std::string& worker,
                    const v1::CheckpointWritten& message);
  void OnFailed(JobRecord& record, const std::string& worker, const v1::Failed& message);
  void OnPathsChecked(const std::string& worker, const v1::PathsChecked& message);

  JobRecords records_;
  WorkerRegistry* const registry_;
  const JobManagerOptions& options_;
  const JobPlanners planners_;
  RequestBook requests_;
  int64_t next_ = 1, first_version_ = 0;  // A new job's number; versions told since Recover.
  // A submit of which the store did not say whether it was written. The client was told so; a
  // planner after this one may find the job, this one removes it before it takes another.
  struct Doubtful {
    Job job;
    std::string request_id;
  };
  std::optional<Doubtful> doubtful_;
  absl::Time ticked_ = absl::InfinitePast();
  std::vector<std::string> notes_;
  bool suspended_ = false;
  absl::Time forget_again_ = absl::InfinitePast();
};

}  // namespace stagewright
