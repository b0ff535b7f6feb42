// A job manager with workers that answer by script.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "planner_service/lifecycle/job_manager.h"
#include "tests/planner_service/jobs/recording_store.h"

namespace stagewright::testing {

// How long tests wait for what other threads do: those that search leave the cores to others.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// What a scripted worker is told, and whether it answers.
struct FakeWorker {
  std::string name;
  int64_t session = 0;
  std::deque<v1::ConnectResponse> inbox;
  std::vector<v1::ConnectResponse> heard;  // Everything, in order.
  // Kinds of messages it does not answer.
  std::set<v1::ConnectResponse::MessageCase> silent_on;
  std::string refusal;      // Answers Prepare with Failed.
  int64_t total_steps = 3;  // What it counts.
  bool connected = false;
  bool keeps_graphs = false;         // It registers so, and asks for graphs that it does not know.
  std::set<std::string> graphs;      // Those that it knows, by SHA-256.
  std::optional<v1::Prepare> waits;  // For its graph.
  // With the next message of these kinds its stream breaks: that message is lost, and all that wait
  // behind it. Then it connects again with its run and repeats its last report.
  std::set<v1::ConnectResponse::MessageCase> loses_told;
  std::set<v1::ConnectRequest::MessageCase> loses_said;
  // Its run: the job, the generation, and what it has begun of it.
  std::string job;
  int64_t generation = 0;
  std::set<v1::ConnectResponse::MessageCase> begun;
  std::optional<v1::ConnectRequest> last_report;
};

// A device has done a step.
v1::ConnectRequest Progress(const std::string& job, int64_t generation, int64_t step,
                            int32_t device);

class JobHarness {
 public:
  explicit JobHarness(RecordingStore* store, JobManagerOptions options = {});
  ~JobHarness();

  FakeWorker& Worker(const std::string& name) { return *workers_[name]; }
  // Registers the worker, with what it still runs, and after which step it empties its pipelines.
  void Connect(const std::string& name,
               const std::vector<std::pair<std::string, int64_t>>& running = {},
               int64_t flush_after = 0);
  void Disconnect(const std::string& name);
  // Those that are connected are heard of then.
  void Heartbeats(absl::Time now);
  // Time passes until then: the planner ticks as it is to, and all connected workers are heard of.
  void PassUntil(absl::Time time);
  // Answers for all workers until none has an unread message.
  void Pump();
  // Pumps until the job has the state (or has ended); the job as Get shows it.
  v1::Job Await(const std::string& job, v1::JobState state);
  v1::Job Get(const std::string& job) const { return *jobs->Get(job); }
  // All devices of the job report that they have done this step.
  void Step(const std::string& job, int64_t step);
  // Each job, and each request id, has an output path of its own.
  std::string Submit(const v1::JobSpec& spec, const std::string& request_id = "");
  // A page of jobs; with `token` the one that it names, and then the next one's.
  std::vector<v1::Job> List(int page_size = 0, std::string* token = nullptr) const;
  // The only planning thread is busy from here on, as with a long search, until it is told to go
  // on.
  void HoldPlanning(const absl::Notification& go);
  // What `worker` heard of this kind.
  int Heard(const std::string& worker, v1::ConnectResponse::MessageCase kind);
  // What happened to the job, and to workers, of this kind.
  std::vector<v1::Event> Events(const std::string& job, v1::EventKind kind) const;
  std::vector<v1::Event> WorkerEvents(v1::EventKind kind) const;

  RecordingStore* const store;
  std::set<std::string> without_keys;  // Workers that do not know of them.
  ProfileStore profiles;
  WorkerRegistry registry;
  PlanningPool pool;
  std::unique_ptr<JobManager> jobs;
  std::vector<std::pair<std::string, v1::JobState>> announced;  // By change of state.
  bool announced_before_stored = false;

 private:
  void Answer(FakeWorker& worker, const v1::ConnectResponse& message);
  void Say(FakeWorker& worker, const v1::ConnectRequest& message);
  void BreakStream(FakeWorker& worker);
  void Train(FakeWorker& worker, const std::string& job, int64_t generation);

  absl::Time passed_ = absl::InfinitePast();
  absl::Mutex mutex_;  // Inboxes.
  std::map<std::string, std::unique_ptr<FakeWorker>> workers_;
  // Devices of each worker in its present job, and the program's.
  std::map<std::string, std::vector<int32_t>> devices_;
};

}  // namespace stagewright::testing
