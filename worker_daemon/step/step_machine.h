// Which action of a device's program runs when: a driver of the RunCursor over the steps of a job.
// What actions do is for a StepEffects; nothing here knows LibTorch.
//
// The thread that calls Run is the compute lane. Transfers are asynchronous: the thread that learns
// that one has ended, the caller's or one of a transport's, calls End, which tells the cursor and
// starts what became ready. All-reduces block and have a thread of their own, where those of the
// gradients that a backward pass has completed run while it makes others (Reach).
//
// A synchronous program's body runs once per step. The sections of an asynchronous program follow
// each other without a barrier (program.h): while Run runs the section of one step, transfers of
// the next may start.
//
// A trace event lasts from Cursor::Start to Cursor::Finish, so that the time a thread takes to wake
// up belongs to the action it wakes up for, and a replay of the trace has no gaps.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/program/program.h"
#include "common/program/run_cursor.h"
#include "worker_daemon/step/device_plan.h"
#include "worker_daemon/step/step_action.h"
#include "worker_daemon/step/step_effects.h"

namespace stagewright {

// A step to run. Within a run (see steps_left) each has the number after the one before it.
struct StepOfJob {
  int64_t number = 0;  // From 0.
  absl::Time deadline = absl::InfiniteFuture();
  // How many steps of an asynchronous program follow without a flush; 0 for other programs.
  int64_t steps_left = 0;
};

class StepMachine {
 public:
  // All references must outlive the machine.
  StepMachine(const Program& program, const DevicePlan& plan, StepEffects& effects);

  // Waits for every transfer to end, aborting them if a run of several steps was left in its
  // middle. REQUIRES: no call is under way.
  ~StepMachine();

  // Whether no run is under way, or `step` is the next one of it; it may turn out shorter.
  bool MayRun(const StepOfJob& step) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs the compute actions of a step, or up to the first failure. REQUIRES: MayRun(step).
  void Run(const StepOfJob& step) ABSL_LOCKS_EXCLUDED(mutex_);

  // After Run: waits, unless the run goes on with another step, for all that is under way. Returns
  // the first failure, which is that of all later steps, too: DEADLINE_EXCEEDED, naming device,
  // step and the actions that were waited for; what Abort was called with; the failure of an
  // action, with its device, step and name.
  absl::Status AwaitEnd() ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether another step of the run follows.
  bool in_run() const ABSL_LOCKS_EXCLUDED(mutex_);

  // What has ended since the last call.
  StepTrace TakeTrace() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends a transfer. Safe from any thread, as all below.
  void End(const StepAction& action, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // The backward pass under way has come to its mark at `node`: all-reduces may wait for it.
  void Reach(const StepAction& pass, int32_t node) ABSL_LOCKS_EXCLUDED(mutex_);

  // An action turned out to have failed, perhaps after its end.
  void Fail(const StepAction& action, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the step under way and all later ones with `status`.
  void Abort(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // The first failure so far.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Begin(const StepOfJob& step) ABSL_LOCKS_EXCLUDED(mutex_);
  void AppendSections(std::vector<RunAction>& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing: the step is done, or failed.
  std::optional<StepAction> NextCompute() ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts what is ready but for the transfers, which it returns.
  std::vector<StepAction> Launch(const std::vector<RunAction>& ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunReductions() ABSL_LOCKS_EXCLUDED(mutex_);
  void SetFailure(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status InAction(const absl::Status& status, const StepAction& action) const;
  absl::Status DeadlineExceeded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ComputeMayGoOn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool StepIsDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AwaitIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const SectionPlan& SectionOf(int64_t section) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StepAction At(RunAction place) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A run of steps without a flush; a synchronous program's is one step.
  struct RunOfSteps {
    RunCursor cursor;
    int64_t first_step;
    StepOfJob step;         // The one under way.
    int64_t section;        // In which it computes last.
    int64_t last_section;   // The epilogue's number, once it is known; -1 before.
    int32_t computes_left;  // Compute actions up to the end of `section`.
  };

  const Program& program_;
  const DevicePlan& plan_;
  StepEffects& effects_;
  // ComputeMayGoOn(), for who polls.
  std::atomic<bool> compute_is_due_ = false;

  mutable absl::Mutex mutex_;
  std::optional<RunOfSteps> run_ ABSL_GUARDED_BY(mutex_);  // Nothing: none is under way.
  std::optional<StepAction> next_compute_ ABSL_GUARDED_BY(mutex_);
  // Transfers and all-reduces under way, and those of them that have not begun.
  std::map<RunAction, StepAction> running_ ABSL_GUARDED_BY(mutex_);
  std::deque<StepAction> reductions_ ABSL_GUARDED_BY(mutex_);
  std::map<RunAction, Nanos> starts_ ABSL_GUARDED_BY(mutex_);  // When each action under way began.
  StepTrace trace_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reduction_thread_;  // If the device takes part in reductions.
};

}  // namespace stagewright
