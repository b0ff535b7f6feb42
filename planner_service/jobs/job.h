// A job as the planner keeps it, whatever becomes of the workers that run it: what was asked for,
// which never changes, and how far it has come.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/units.h"
#include "planner_service/jobs/job_event.h"
#include "planner_service/jobs/job_request.h"
#include "planner_service/wire/sealed.h"

namespace stagewright {

namespace v1 {
class Graph;
class JobSpec;
class Plan;
class StepMeasurement;
}  // namespace v1

enum class JobState {
  kPending,
  kPlanning,
  kWaitingForDevices,
  kStarting,
  kRunning,
  kRecovering,  // A worker of the run is not heard of.
  kSucceeded,
  kFailed,
  kCancelled,
};

// "waiting_for_devices": in messages, logs and metric labels.
absl::string_view JobStateName(JobState state);

// Nothing changes any more.
bool IsTerminal(JobState state);
// The job's stages compute, whether or not all their workers are heard of at the moment.
bool Runs(JobState state);
// Workers have devices, threads and memory for the job.
bool OnWorkers(JobState state);

// The memory of one device of a job.
struct DeviceMemory {
  std::string name;
  int32_t device = 0;        // Index in the job's cluster.
  Bytes predicted_peak = 0;  // By the plan's simulation.
  Bytes measured_peak = 0;   // So far, in all runs; 0: unknown.
  Bytes in_use = 0;          // After the last step.
  Bytes reserved = 0;        // By the allocator of a GPU.
  int64_t allocations = 0;   // Blocks handed out in the present run.
};

// What the workers last reported.
struct JobMetrics {
  int64_t step = 0;  // Steps finished.
  int64_t total_steps = 0;
  double loss = 0;
  Nanos step_time = 0;  // The slowest device's.
  Nanos median_step_time = 0;
  Nanos recent_step_time = 0;  // Median of the last steps of the present run.
  Nanos predicted_step_time = 0;
  double accuracy = -1;  // On the evaluation data; negative: unknown.
  double evaluation_loss = 0;
  double samples_per_second = 0;
  int64_t skipped_steps = 0;
  double loss_scale = 0;
  std::vector<DeviceMemory> memory;  // In the order of the plan's devices.
};

// Steps have taken more than a tenth longer, or shorter, than predicted for a while.
struct JobDrift {
  double ratio = 0;                 // Measured over predicted, less 1.
  std::vector<std::string> causes;  // A line each; empty until actions are measured.
  int64_t since_step = 0;           // Steps done when it was noticed.
};

// A device that is slower than its like (drift/stragglers.h), as of the newest actions.
struct JobStraggler {
  std::string device;      // "worker/device"
  int32_t stage = 0;       // The one that takes it longest.
  double times = 0;        // How many times as long it takes.
  int64_t since_step = 0;  // From 1.
  Nanos busy = 0;          // In a step.
  Nanos expected = 0;      // The same at the pace of its like.
};

struct Job {
  int64_t number = 0;  // The 7 of "jobs/7".
  // As it was submitted, for workers, clients and the store: the graph, which may be large, apart.
  std::shared_ptr<const v1::JobSpec> spec;
  Sealed<v1::Graph> graph;
  // What the plan is for and workers run: `graph`, with the operators cut that the plan names.
  Sealed<v1::Graph> planned_graph;
  // What it says; null once the job has ended.
  std::shared_ptr<const JobRequest> request;
  absl::Time create_time;

  JobState state = JobState::kPending;
  std::string message;            // Why it failed, or what it waits for.
  int32_t queue_position = 0;     // Among jobs that wait for devices, from 1; 0: it does not wait.
  std::string waits_for;          // WaitReasonName while it has a position.
  int64_t version = 1;            // Grows with every change.
  int64_t generation = 0;         // The number of the present or last run.
  int32_t restarts = 0;           // After a worker was lost.
  int32_t replans = 0;            // Given another plan while it ran.
  int32_t preemptions = 0;        // Stopped for a job of higher priority.
  bool preempted = false;         // Such a one, which waits to go on.
  int32_t preempted_devices = 0;  // How many it had before that; 0 if it is not.
  std::string resume_from;        // The checkpoint that it goes on from since; empty otherwise.
  int64_t checkpoint_step = 0;    // Steps that its last complete checkpoint has done; 0: none.
  absl::Time checkpoint_time = absl::InfinitePast();  // When it was complete.
  std::string checkpoint_path;                        // Where the final checkpoint is.
  int32_t failure_code = 0;                           // What a worker failed it with; 0: none did.
  absl::Time end_time = absl::InfiniteFuture();
  std::vector<std::string> devices;   // "worker/device", in the plan's order.
  int32_t most_devices = 0;           // The most that a run of it had.
  std::string growth;                 // Why it runs on fewer than it may grow to; empty otherwise.
  std::vector<std::string> warnings;  // A sentence each.
  std::vector<Event> events;          // The first and the newest, oldest first.
  JobMetrics metrics;
  std::optional<JobDrift> drift;
  std::vector<JobStraggler> stragglers;  // In the present run.
  // The last one of the present plan, as it is shown; null before.
  std::shared_ptr<const v1::StepMeasurement> measurement;
  // As they are shown and sent; null before planning.
  Sealed<v1::Plan> plan, sequential_plan;

  std::string name() const;
  // One of now, which the job is not given yet.
  Event EventOf(EventKind kind, std::string why, std::string worker = "") const;
  // Unless it is known already.
  void Warn(const std::string& warning);
};

// The job for its files: "jobs-7-" and the time when it was submitted, in nanoseconds. A planner
// with a new state gives names anew, but not these.
std::string RunName(const Job& job);

// The 7 of "jobs/7"; -1 of other names.
int64_t JobNumber(absl::string_view name);

}  // namespace stagewright
