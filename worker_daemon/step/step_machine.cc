#include "worker_daemon/step/step_machine.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock/steady_wait.h"

namespace stagewright {
namespace {

Nanos Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + Nanos(time.tv_nsec);
}

}  // namespace

StepMachine::StepMachine(const Program& program, const DevicePlan& plan, StepEffects& effects)
    : program_(program), plan_(plan), effects_(effects) {
  if (plan.reduces) reduction_thread_ = std::thread([this] { RunReductions(); });
}

StepMachine::~StepMachine() {
  {
    absl::MutexLock lock(&mutex_);
    if (run_.has_value()) SetFailure(absl::CancelledError("the run was left in its middle"));
    AwaitIdle();
    stopping_ = true;
  }
  if (reduction_thread_.joinable()) reduction_thread_.join();
}

bool StepMachine::MayRun(const StepOfJob& step) const {
  absl::MutexLock lock(&mutex_);
  if (!run_.has_value()) return true;
  const int64_t left = run_->step.steps_left;
  return step.number == run_->step.number + 1 && step.steps_left < left &&
         step.steps_left >= std::min<int64_t>(left - 1, 1);
}

void StepMachine::Run(const StepOfJob& step) {
  Begin(step);
  for (auto action = NextCompute(); action.has_value(); action = NextCompute())
    End(*action, effects_.Compute(*action));
}

void StepMachine::Begin(const StepOfJob& step) {
  std::vector<StepAction> transfers;
  {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return;
    std::vector<RunAction> ready;
    if (run_.has_value()) {
      ++run_->section;
    } else {
      run_ = RunOfSteps{RunCursor(), step.number, step, 0, -1, 0};
      if (plan_.has_sections) {
        ready = run_->cursor.Append(*plan_.prologue.program);
        run_->computes_left = plan_.prologue.computes;
        run_->section = 1;
      }
    }
    run_->step = step;
    AppendSections(ready);
    run_->computes_left += SectionOf(run_->section).computes;
    transfers = Launch(ready);
    compute_is_due_ = ComputeMayGoOn();
  }
  effects_.StartTransfers(transfers);
}

const SectionPlan& StepMachine::SectionOf(int64_t section) const {
  if (!plan_.has_sections) return plan_.body;
  if (section == 0) return plan_.prologue;
  return section == run_->last_section ? plan_.epilogue : plan_.body;
}

// Up to the section of the step after the one under way: its transfers may start early.
void StepMachine::AppendSections(std::vector<RunAction>& ready) {
  const int64_t steps_left = run_->step.steps_left;
  if (plan_.has_sections && steps_left <= 1) run_->last_section = run_->section + steps_left;
  const int64_t last = run_->section + std::min<int64_t>(steps_left, 1);
  while (run_->cursor.sections() <= last) {
    const auto& section = *SectionOf(run_->cursor.sections()).program;
    for (RunAction place : run_->cursor.Append(section)) ready.push_back(place);
  }
}

StepAction StepMachine::At(RunAction place) const {
  const SectionPlan& section = SectionOf(place.section);
  // The prologue goes before the section of the first step.
  const int64_t steps_before = plan_.has_sections ? std::max<int64_t>(place.section - 1, 0) : 0;
  StepAction action{place,
                    &(*section.program)[place.index],
                    &section.actions[place.index],
                    run_->first_step + steps_before,
                    {}};
  action.samples = SamplesInStep(action.step, action.action().samples, program_.mini_batch);
  return action;
}

bool StepMachine::StepIsDone() const {
  return run_->step.steps_left > 0 ? run_->computes_left == 0 : run_->cursor.done();
}

bool StepMachine::ComputeMayGoOn() const {
  return !failure_.ok() || next_compute_.has_value() || StepIsDone();
}

std::optional<StepAction> StepMachine::NextCompute() {
  effects_.MoveTransfers([this] { return compute_is_due_.load(std::memory_order_relaxed); });
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) return std::nullopt;
  if (!AwaitUntil(mutex_, absl::Condition(this, &StepMachine::ComputeMayGoOn),
                  run_->step.deadline)) {
    SetFailure(DeadlineExceeded());
  }
  if (!failure_.ok() || StepIsDone()) return std::nullopt;
  const std::optional<StepAction> next = std::exchange(next_compute_, std::nullopt);
  compute_is_due_ = ComputeMayGoOn();
  return next;
}

absl::Status StepMachine::DeadlineExceeded() const {
  std::vector<std::string> waiting;
  for (const auto& [place, action] : running_) waiting.push_back(InWords(action.action()));
  return absl::DeadlineExceededError(
      absl::StrCat("device ", plan_.program->device.value(), ": step ", run_->step.number,
                   " did not finish in time; waiting for ",
                   waiting.empty() ? "nothing" : absl::StrJoin(waiting, ", ")));
}

std::vector<StepAction> StepMachine::Launch(const std::vector<RunAction>& ready) {
  std::vector<StepAction> transfers;
  const Nanos start = ready.empty() ? 0 : Now();
  for (RunAction place : ready) {
    const StepAction action = At(place);
    run_->cursor.Start(place);
    starts_[place] = start;
    const ActionKind kind = action.action().kind;
    if (IsCompute(kind)) {
      next_compute_ = action;  // The compute lane is idle, so there is no other.
      continue;
    }
    running_.emplace(place, action);
    if (IsCollective(kind)) {
      reductions_.push_back(action);
    } else {
      transfers.push_back(action);
    }
  }
  return transfers;
}

void StepMachine::End(const StepAction& action, const absl::Status& status) {
  const Nanos end = Now();
  std::vector<StepAction> transfers;
  {
    absl::MutexLock lock(&mutex_);
    running_.erase(action.place);
    if (!status.ok()) SetFailure(InAction(status, action));
    if (!failure_.ok()) return;
    const auto start = starts_.find(action.place);
    trace_.events.push_back({plan_.program->device, action.action(),
                             static_cast<int32_t>(action.step), start->second, end});
    trace_.actions.push_back(action);
    starts_.erase(start);
    if (IsCompute(action.action().kind)) --run_->computes_left;
    transfers = Launch(run_->cursor.Finish(action.place));
    compute_is_due_ = ComputeMayGoOn();
  }
  effects_.StartTransfers(transfers);
}

void StepMachine::Reach(const StepAction& pass, int32_t node) {
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) return;
  // Only sums wait for marks (check_ids.h), so that there is no transfer to start.
  Launch(run_->cursor.Reach(pass.place, node));
}

absl::Status StepMachine::InAction(const absl::Status& status, const StepAction& action) const {
  return Annotate(
      status, absl::StrCat("device ", plan_.program->device.value(), ", step ", action.step, ", ",
                           InWords(action.action()), effects_.Details(action)));
}

void StepMachine::SetFailure(absl::Status status) {
  if (!failure_.ok()) return;
  failure_ = std::move(status);
  compute_is_due_ = true;
  // Collectives that have not begun never will.
  for (const StepAction& action : reductions_) running_.erase(action.place);
  reductions_.clear();
  effects_.AbortTransfers(failure_);
}

void StepMachine::Fail(const StepAction& action, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  SetFailure(InAction(status, action));
}

void StepMachine::Abort(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  SetFailure(status.ok() ? absl::CancelledError("aborted") : status);
}

absl::Status StepMachine::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

bool StepMachine::in_run() const {
  absl::MutexLock lock(&mutex_);
  return run_.has_value();
}

void StepMachine::AwaitIdle() {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_.empty(); };
  mutex_.Await(absl::Condition(&idle));
}

absl::Status StepMachine::AwaitEnd() {
  absl::MutexLock lock(&mutex_);
  if (failure_.ok() && run_->step.steps_left > 0) return absl::OkStatus();
  AwaitIdle();
  run_.reset();
  starts_.clear();
  next_compute_.reset();
  return failure_;
}

StepTrace StepMachine::TakeTrace() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(trace_, {});
}

void StepMachine::RunReductions() {
  const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !reductions_.empty();
  };
  for (;;) {
    StepAction action;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&woken));
      if (reductions_.empty()) return;
      action = reductions_.front();
      reductions_.pop_front();
    }
    End(action, effects_.RunCollective(action));
  }
}

}  // namespace stagewright
