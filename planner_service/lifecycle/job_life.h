// What becomes of jobs: their transitions, and what each asks of workers. Every transition is in
// the store before it is acted on or seen.
//
// Starting is all-or-nothing: every worker prepares, then every worker connects, then all start;
// one refusal aborts all. Messages carry the job's generation, and those of an older one are
// ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/front_door/planner_table.h"
#include "planner_service/jobs/job.h"
#include "planner_service/jobs/planned_job.h"
#include "planner_service/jobs/request_book.h"
#include "planner_service/lifecycle/job_records.h"
#include "planner_service/lifecycle/replanning.h"
#include "planner_service/lifecycle/retention.h"
#include "planner_service/planner/planner.h"
#include "planner_service/registry/worker_registry.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

struct JobManagerOptions {
  absl::Duration worker_timeout = absl::Seconds(10);     // A worker silent for longer is lost.
  absl::Duration starting_timeout = absl::Seconds(120);  // From Prepare to Start.
  absl::Duration planning_timeout = absl::Seconds(60);
  // After a restart, the workers of a running job have this long to come back. Longer than a worker
  // waits between two attempts to connect.
  absl::Duration recovery_timeout = absl::Seconds(30);
  // Whether links are being measured. A new job waits that long for better figures.
  std::function<bool()> measuring;
  absl::Duration measuring_timeout = absl::Seconds(3);
  std::string default_planner = kDefaultPlanner;
  Retention keep;  // Ended jobs beyond it are forgotten.
  std::function<void(int64_t job)> on_forgotten;
  // Called after every change of a job, in order, without locks held by the caller that matter;
  // must not call back.
  std::function<void(const Job&)> on_change;
  // The same of everything that happens to jobs and workers.
  std::function<void(const Event&)> on_event;
  // A job's search ended: its planner, "found" or the code of an error, and its time.
  std::function<void(const std::string& planner, const std::string& result, double seconds)>
      on_planned;
};

// Not thread-safe: JobManager's, under its lock.
class JobLife {
 public:
  // Plans on another thread and then calls OnPlanned. RESOURCE_EXHAUSTED if too many wait.
  using StartPlanner = std::function<absl::Status(
      const Job& job, std::shared_ptr<const Cluster> cluster,
      std::shared_ptr<const OperatorProfile> profile, std::shared_ptr<SearchContext> context)>;

  // Store and registry outlive it.
  JobLife(Store* store, WorkerRegistry* registry, const JobManagerOptions& options,
          StartPlanner start_planner);

  const std::map<int64_t, JobRecord>& records() const { return records_.all(); }
  const JobStore& store() const { return records_.store(); }
  // What Recover found damaged, a line each.
  const std::vector<std::string>& notes() const { return notes_; }

  // JobManager says what these do.
  absl::Status Recover();
  absl::Status CheckWritable() const;
  // REQUIRES: Check(request), which is what the spec says.
  absl::StatusOr<const Job*> Submit(const v1::JobSpec& spec, JobRequest request,
                                    const std::string& request_id);
  // What Submit would refuse it for now.
  absl::Status MaySubmit(const v1::JobSpec& spec, const std::string& request_id) const;
  absl::Status Cancel(int64_t job, const std::string& request_id);
  // Forgets a job that has ended.
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
  void Suspend();
  // From now on no job moves on by itself.
  void Freeze() { suspended_ = true; }
  absl::StatusOr<int64_t> Register(const v1::Register& message, const WorkerRegistry::Sink& sink);
  void OnLost(const std::string& worker, const std::string& why);
  void OnMessage(const std::string& worker, const v1::ConnectRequest& message);
  void Tick(absl::Time now);
  // The answer for the job in that generation, which is dropped unless it is still being planned.
  void OnPlanned(int64_t job, int64_t generation, absl::StatusOr<PlannedJob> plan);

 private:
  absl::Status RecoverJob(v1::Job stored);
  void ForgetOld(absl::Time now);
  // Moves jobs on, in the order they came.
  void Advance();
  void Plan(JobRecord& record);
  void TryStart(JobRecord& record);
  // All devices have stopped, and their state is in this checkpoint.
  void ChangeOver(JobRecord& record, const std::string& checkpoint);
  // Ends a job: tells its workers, frees its devices, lets others go on.
  void End(JobRecord& record, JobState state, const std::string& message);
  // Ends the run, if there is one: tells its workers, whose devices are free when they have ended
  // it, but for those that the job keeps.
  void EndRun(JobRecord& record, const v1::ConnectResponse& message,
              const std::vector<std::string>& keep = {});
  // Ends a run that may have lost a worker: the job starts again, or fails with the message if it
  // may not, or does so again and again for the same cause.
  void FailOrRestart(JobRecord& record, const std::string& cause, const std::string& message);
  // Ends the run; the job is planned anew.
  void PutBack(JobRecord& record, const v1::ConnectResponse& abort, const std::string& message);
  // A lost worker is back with its part of the job. False if that is not possible.
  bool Resume(JobRecord& record, const std::string& worker);
  // A lost worker is back, perhaps without its part: once all are, the run goes on or is over.
  void AfterReturn(JobRecord& record);
  // The clock, as far as Tick has moved it at least.
  absl::Time Now() const;
  // The deadline of the present state has passed.
  void OnLate(JobRecord& record);
  void OnPrepared(JobRecord& record, const std::string& worker, const v1::Prepared& message);
  void OnConnected(JobRecord& record, const std::string& worker);
  void OnMerged(JobRecord& record, const v1::Merged& message);
  void OnShard(JobRecord& record, const v1::ShardWritten& message);
  void OnCheckpoint(JobRecord& record, const std::string& worker,
                    const v1::CheckpointWritten& message);
  void OnFailed(JobRecord& record, const std::string& worker, const v1::Failed& message);

  JobRecords records_;
  WorkerRegistry* const registry_;
  const JobManagerOptions& options_;
  const StartPlanner start_planner_;
  RequestBook requests_;
  int64_t next_ = 1;
  absl::Time ticked_ = absl::InfinitePast();
  std::vector<std::string> notes_;
  bool suspended_ = false;
  absl::Time forget_again_ = absl::InfinitePast();
};

}  // namespace stagewright
