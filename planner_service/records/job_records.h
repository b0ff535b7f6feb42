// The jobs that the planner knows, and how a change of them is kept and told. Every transition is
// in the store before it is seen: while one cannot be written, others see the job as it was, its
// workers are told nothing, and the write is tried again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/jobs/job.h"
#include "planner_service/jobs/job_store.h"
#include "planner_service/profiles/profile_keeper.h"
#include "planner_service/records/ended_jobs.h"
#include "planner_service/records/job_record.h"
#include "planner_service/registry/worker_registry.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Not thread-safe.
class JobRecords {
 public:
  using OnChange = std::function<void(const Job&)>;
  using OnEvent = std::function<void(const Event&)>;

  // What is pointed to outlives it. The functions may be empty.
  JobRecords(Store* store, ProfileStore* profiles, WorkerRegistry* registry, OnChange on_change,
             OnEvent on_event);

  // By number. Those that have not ended, and those that have until Retire. What is done about jobs
  // again and again looks at these alone, however many there were before.
  std::map<int64_t, JobRecord>& live() { return live_; }
  const std::map<int64_t, JobRecord>& live() const { return live_; }
  // All others.
  EndedJobs& ended() { return ended_; }
  const EndedJobs& ended() const { return ended_; }
  // Makes live jobs that are at rest ended ones, once their workers have ended their runs, which
  // are waited for a while; whether there were any. References to them are none any more.
  bool Retire(absl::Time now);
  JobStore& store() { return store_; }
  const JobStore& store() const { return store_; }
  // What operators take, without a wait.
  const ProfileKeeper& profiles() const { return profiles_; }
  const WorkerRegistry& registry() const { return *registry_; }

  // Whether there is such a job, live or ended; its state, REQUIRES: there is.
  bool Knows(int64_t job) const { return live_.contains(job) || ended_.Find(job) != nullptr; }
  JobState StateOf(int64_t job) const;
  JobRecord* Find(int64_t job);  // Null if there is no such live job.
  // The job whose present run `worker` takes part in; null: what it says is of no concern.
  JobRecord* FindRun(const std::string& worker, const std::string& name, int64_t generation);

  // Writes the job with its new state, then tells everybody; later if the store fails.
  void Transition(JobRecord& record, JobState state, const std::string& message);
  // OK unless a transition waits to be written: then nothing new may begin, and this is why, with
  // the code of the store's error.
  const absl::Status& trouble() const { return trouble_; }
  // The store failed a call, which is told so and tries again itself or not: nothing waits for it.
  void NoteRefused(const absl::Status& why);
  // Why the store did not take what it was given last, a call's too; OK once it takes something.
  const absl::Status& refusal() const { return trouble_.ok() ? refused_ : trouble_; }
  // Tries again to write what waits, if it is time to, each by itself if the store answers; after a
  // call that failed, whether it takes anything.
  void WriteWaiting(absl::Time now);
  // The planner itself stood still for so long before `now`: nobody who is waited for could answer.
  void Forgive(absl::Duration stood_still, absl::Time now);
  void Announce(const Job& job);
  // Something happened, which is logged, here and with its job, and counted.
  void Report(const Event& event);
  // Something happened to the job: it is reported, and stored with its next transition.
  void Note(Job& job, EventKind kind, const std::string& message, const std::string& worker = "");
  // A change that is no transition is seen by watchers and not worth a write to disk.
  void AnnounceChange(Job& job);

  // Takes the history from the store. Thousands of jobs may wait that never ran: they have none,
  // and the store is not asked. Errors of JobStore::ReadSteps.
  absl::Status ReadSteps(JobRecord& record) const;
  // The store has the history before long. Workers still know what it misses if the planner is
  // killed.
  void WriteStepsSoon(JobRecord& record);
  // Writes it now if it is to be written at all; again later if that fails.
  void WriteSteps(JobRecord& record);

  // Plans to come know what a job measured, before long.
  void KeepProfile(const Job& job, OperatorProfile profile);

  // What a worker logged about a run that it takes part in, or has not ended yet. It is stored when
  // the job has ended.
  void NoteLog(const std::string& worker, const v1::LogLines& message, absl::Time now);
  // What was logged about jobs that have ended since their end was stored.
  void WriteLogs();

  // Once the store has the job's state.
  void Send(JobRecord& record, const std::string& worker, const v1::ConnectResponse& message);
  // REQUIRES: the job has a run.
  void SendToAll(JobRecord& record, const v1::ConnectResponse& message);
  void SendToFirst(JobRecord& record, const v1::ConnectResponse& message);

 private:
  absl::Status WriteJob(JobRecord& record);
  void Hold(JobRecord& record, const absl::Status& why);
  void TryAgainSoon();  // Unless that is planned already.
  void Release(JobRecord& record, absl::Time now);

  JobStore store_;
  WorkerRegistry* const registry_;
  const OnChange on_change_;
  const OnEvent on_event_;
  std::map<int64_t, JobRecord> live_;
  EndedJobs ended_;
  absl::Status trouble_, refused_;
  absl::Time retry_ = absl::InfinitePast();
  absl::Duration pause_;    // Between tries; grows.
  ProfileKeeper profiles_;  // Readers of jobs wait for whoever works on these.
};

}  // namespace stagewright
