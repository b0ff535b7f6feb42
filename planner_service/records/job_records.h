// The jobs that the planner knows, with what is only in memory about them: how a change is kept and
// told. Every transition is in the store before it is seen: while one cannot be written, others see
// the job as it was, its workers are told nothing, and the write is tried again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/wire/step_history.h"
#include "planner_service/growth/growth_pauses.h"
#include "planner_service/jobs/job.h"
#include "planner_service/jobs/job_store.h"
#include "planner_service/planner/planner.h"
#include "planner_service/profiles/profile_store.h"
#include "planner_service/records/changeover_state.h"
#include "planner_service/records/plans_ahead.h"
#include "planner_service/registry/worker_registry.h"
#include "planner_service/runs/run.h"
#include "planner_service/runs/setbacks.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// What the actions of a job's steps took, by its present plan.
struct Measured {
  int64_t step = 0;   // Steps done when the newest of them was.
  int32_t steps = 0;  // How many were measured.
  std::vector<ActionTimes> actions;
  std::vector<TimedOperator> operators;  // None: not timed yet.
};

// A job, and what is only in memory about it.
struct JobRecord {
  Job job;
  std::optional<Job> told;             // As it was told last, unless it has ended.
  std::optional<absl::Time> unstored;  // Since when `job` is further on than the store.
  // What workers are to be told once the store has the job.
  std::vector<std::pair<std::string, v1::ConnectResponse>> outbox;
  std::shared_ptr<SearchContext> planning;  // Set while planning.
  PlansAhead ahead;
  v1::Cluster cluster;                   // For workers, from the last planning.
  std::vector<v1::Program> evaluations;  // PlannedJob::evaluations of the last planning.
  std::optional<Run> run;                // While workers have devices for the job.
  StepHistory history;                   // The whole job's; once it has ended, in the store only.
  absl::Time write_steps = absl::InfiniteFuture();  // When the store is to have it.
  bool write_job = false;  // The job is written with it: more than its steps has changed.
  v1::GetJobTraceResponse trace;
  std::optional<Measured> measured;
  bool asked_operators = false;  // Workers were asked to time them, in the present run.
  std::shared_ptr<SearchContext> replanning;      // Set while a plan for the running job is sought.
  std::optional<Changeover> changeover;           // From the search until the job has the plan.
  absl::Time leave_after = absl::InfinitePast();  // It is not asked to leave devices before.
  bool room_made = false;                         // Jobs were or are stopped so that it can start.
  Setbacks setbacks;
  GrowthPauses growth_pauses;
  bool lacks_room = false;    // Job::growth says that there are no devices to grow onto.
  bool seeks_growth = false;  // `replanning` is for more devices, not for somebody who asked.
  std::optional<absl::Duration> start_took;  // From its preparation to steps, of the present run.
  std::string put_back;                      // Why its last run ended, while it waits to go on.
  absl::Time start_after = absl::InfinitePast();      // A job that starts again waits until then.
  absl::Time workers_back_by = absl::InfinitePast();  // If the planner was started again.
  absl::Time settled_by = absl::InfinitePast();  // It waits for its runs to end at most until then.
  size_t least_devices = 0;                      // It needs, as far as is known; 0: not known.
};

// The job as others may see it.
const Job& ShownJob(const JobRecord& record);

// For a job that has ended and is stored: what is large of it stays in the store alone.
void ForgetParts(JobRecord& record);

// Not thread-safe.
class JobRecords {
 public:
  using OnChange = std::function<void(const Job&)>;
  using OnEvent = std::function<void(const Event&)>;

  // What is pointed to outlives it. The functions may be empty.
  JobRecords(Store* store, ProfileStore* profiles, WorkerRegistry* registry, OnChange on_change,
             OnEvent on_event);

  // By number.
  std::map<int64_t, JobRecord>& all() { return all_; }
  const std::map<int64_t, JobRecord>& all() const { return all_; }
  JobStore& store() { return store_; }
  const JobStore& store() const { return store_; }
  ProfileStore& profiles() { return *profiles_; }
  const WorkerRegistry& registry() const { return *registry_; }

  JobRecord* Find(int64_t job);  // Null if there is no such job.
  // The job whose present run `worker` takes part in; null: what it says is of no concern.
  JobRecord* FindRun(const std::string& worker, const std::string& name, int64_t generation);

  // Writes the job with its new state, then tells everybody; later if the store fails.
  void Transition(JobRecord& record, JobState state, const std::string& message);
  // OK unless a transition waits to be written: then nothing new may begin, and this is why, with
  // the code of the store's error.
  const absl::Status& trouble() const { return trouble_; }
  // Tries again to write what waits, if it is time to, each by itself if the store answers.
  void WriteWaiting(absl::Time now);
  // The planner itself stood still for so long before `now`: nobody who is waited for could answer.
  void Forgive(absl::Duration stood_still, absl::Time now);
  void Announce(const Job& job);
  // Something happened, which is logged and counted.
  void Report(const Event& event) const;
  // Something happened to the job: it is reported, and stored with its next transition.
  void Note(Job& job, EventKind kind, const std::string& message, const std::string& worker = "");
  // A change that is no transition is seen by watchers and not worth a write to disk.
  void AnnounceChange(Job& job);

  // The store has the history before long. Workers still know what it misses if the planner is
  // killed.
  void WriteStepsSoon(JobRecord& record);
  // Writes it now if it is to be written at all; again later if that fails.
  void WriteSteps(JobRecord& record);

  // Once the store has the job's state.
  void Send(JobRecord& record, const std::string& worker, const v1::ConnectResponse& message);
  // REQUIRES: the job has a run.
  void SendToAll(JobRecord& record, const v1::ConnectResponse& message);
  void SendToFirst(JobRecord& record, const v1::ConnectResponse& message);

 private:
  absl::Status WriteJob(JobRecord& record);
  void Hold(JobRecord& record, const absl::Status& why);
  void Release(JobRecord& record, absl::Time now);

  JobStore store_;
  ProfileStore* const profiles_;
  WorkerRegistry* const registry_;
  const OnChange on_change_;
  const OnEvent on_event_;
  std::map<int64_t, JobRecord> all_;
  absl::Status trouble_;
  absl::Time retry_ = absl::InfinitePast();
  absl::Duration pause_;  // Between tries; grows.
};

}  // namespace stagewright
