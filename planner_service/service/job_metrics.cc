#include "planner_service/service/job_metrics.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"

namespace stagewright {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

Family<Gauge>& GaugeOf(Registry& registry, const char* name, const char* help) {
  return BuildGauge().Name(name).Help(help).Register(registry);
}

Family<Counter>& CounterOf(Registry& registry, const char* name, const char* help) {
  return BuildCounter().Name(name).Help(help).Register(registry);
}

double UnixSeconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

std::string Label(absl::string_view text) { return std::string(text); }

// The code that a worker gave.
std::string CauseOfCode(int code) {
  return absl::AsciiStrToLower(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
}

// What FailureCause may say. Series begin at 0: of one that begins at 1 Prometheus takes it for no
// increase, and no alert tells of the first.
std::vector<std::string> FailureCauses() {
  std::vector<std::string> causes = {"worker_lost", "other",
                                     Label(JobStateName(JobState::kPlanning)),
                                     Label(JobStateName(JobState::kStarting))};
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code)
    causes.push_back(CauseOfCode(code));
  return causes;
}

}  // namespace

std::string FailureCause(const Job& job, JobState before) {
  if (job.failure_code != 0) return CauseOfCode(job.failure_code);
  if (before == JobState::kRecovering) return "worker_lost";
  if (before == JobState::kPlanning || before == JobState::kStarting)
    return Label(JobStateName(before));
  return "other";
}

JobSeries::JobSeries(Registry& registry)
    : states_(GaugeOf(registry, "stagewright_planner_jobs", "Jobs, by state.")),
      step_(GaugeOf(registry, "stagewright_planner_job_step_seconds",
                    "Latest step of a running job.")),
      recent_(GaugeOf(registry, "stagewright_planner_job_recent_step_seconds",
                      "Median of the last steps of a running job, at most 64.")),
      predicted_(GaugeOf(registry, "stagewright_planner_job_predicted_step_seconds",
                         "Step time that the plan of a running job predicts.")),
      drift_(GaugeOf(registry, "stagewright_planner_job_drift_ratio",
                     "By how much steps of a running job lastingly take longer than predicted, "
                     "over the prediction; 0 within a tenth.")),
      loss_(GaugeOf(registry, "stagewright_planner_job_loss", "Latest loss of a running job.")),
      memory_(GaugeOf(registry, "stagewright_planner_job_memory_peak_bytes",
                      "Most memory that the tensors of a running job took so far, by device.")),
      predicted_memory_(GaugeOf(registry, "stagewright_planner_job_predicted_memory_peak_bytes",
                                "Peak memory that the plan of a running job predicts, by "
                                "device.")),
      restarts_(GaugeOf(registry, "stagewright_planner_job_restarts",
                        "How often a job that has not ended was started again.")),
      progress_time_(GaugeOf(registry, "stagewright_planner_job_progress_timestamp_seconds",
                             "When a running job began to run or last finished a step.")),
      checkpoint_time_(GaugeOf(registry, "stagewright_planner_job_checkpoint_timestamp_seconds",
                               "When the last complete checkpoint of a running job that saves its "
                               "state was written; before the first, when it began to run.")),
      queued_(GaugeOf(registry, "stagewright_planner_queued_jobs",
                      "Jobs that wait for devices, by reason.")),
      stragglers_(GaugeOf(registry, "stagewright_planner_job_straggler_ratio",
                          "How many times as long as its like a straggler of a running job takes, "
                          "by device; other devices have no series.")),
      ended_(CounterOf(registry, "stagewright_planner_jobs_ended_total",
                       "Jobs that ended since the planner started, by outcome; of failed ones the "
                       "cause.")),
      queue_seconds_(CounterOf(registry, "stagewright_planner_queue_seconds_total",
                               "Time that jobs have waited for devices, by reason, counted when a "
                               "job waits no more or for another one.")),
      job_events_(CounterOf(registry, "stagewright_planner_job_events_total",
                            "What happened to jobs: restarts, losses, checkpoints, ...")),
      worker_events_(CounterOf(registry, "stagewright_planner_worker_events_total",
                               "Workers that came and that were lost.")),
      wait_seconds_(prometheus::BuildHistogram()
                        .Name("stagewright_planner_job_wait_seconds")
                        .Help("From a job's submission until workers first prepared it.")
                        .Register(registry)
                        .Add({}, Histogram::BucketBoundaries{0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000,
                                                             3000, 10000, 30000})) {
  for (const JobState state : {JobState::kSucceeded, JobState::kCancelled})
    ended_.Add({{"outcome", Label(JobStateName(state))}, {"cause", ""}});
  for (const std::string& cause : FailureCauses())
    ended_.Add({{"outcome", Label(JobStateName(JobState::kFailed))}, {"cause", cause}});
  for (int kind = 0; kind <= static_cast<int>(EventKind::kQuarantined); ++kind)
    job_events_.Add({{"kind", Label(EventKindName(static_cast<EventKind>(kind)))}});
  for (const EventKind kind : {EventKind::kWorkerConnected, EventKind::kWorkerLost})
    worker_events_.Add({{"kind", Label(EventKindName(kind))}});
}

void JobSeries::Count(const Event& event) {
  Family<Counter>& family = event.job.empty() ? worker_events_ : job_events_;
  family.Add({{"kind", Label(EventKindName(event.kind))}}).Increment();
}

void JobSeries::Observe(const Job& job) {
  const bool ended = IsTerminal(job.state);
  if (ended && !seen_.contains(job.number)) return;
  auto [it, added] = seen_.try_emplace(job.number, Seen{job.state});
  Seen& seen = it->second;
  const JobState before = seen.state;
  if (added) {
    seen.started = job.generation > 0;
  } else {
    states_.Add({{"state", Label(JobStateName(before))}}).Decrement();
  }
  states_.Add({{"state", Label(JobStateName(job.state))}}).Increment();
  seen.state = job.state;
  if (job.state == JobState::kStarting && !seen.started) {
    seen.started = true;
    wait_seconds_.Observe(absl::ToDoubleSeconds(absl::Now() - job.create_time));
  }
  ShowWait(job, seen);
  ShowStragglers(job, seen);
  if (!ended) return Show(job, seen);
  CountEnd(job, before);
  Hide(job);
  seen_.erase(it);
}

void JobSeries::AddEnded(JobState state, int64_t jobs) {
  states_.Add({{"state", Label(JobStateName(state))}}).Increment(static_cast<double>(jobs));
}

void JobSeries::CountEnd(const Job& job, JobState before) {
  const bool failed = job.state == JobState::kFailed;
  ended_
      .Add({{"outcome", Label(JobStateName(job.state))},
            {"cause", failed ? FailureCause(job, before) : ""}})
      .Increment();
}

void JobSeries::ShowWait(const Job& job, Seen& seen) {
  if (job.waits_for == seen.waits_for) return;
  const absl::Time now = SteadyNow();
  if (!seen.waits_for.empty()) {
    const prometheus::Labels before = {{"reason", seen.waits_for}};
    queued_.Add(before).Decrement();
    queue_seconds_.Add(before).Increment(absl::ToDoubleSeconds(now - seen.since));
  }
  if (!job.waits_for.empty()) queued_.Add({{"reason", job.waits_for}}).Increment();
  seen.waits_for = job.waits_for;
  seen.since = now;
}

void JobSeries::Show(const Job& job, Seen& seen) {
  const prometheus::Labels labels = {{"job", job.name()}};
  if (job.restarts > 0) restarts_.Add(labels).Set(job.restarts);
  if (!Runs(job.state)) {  // Nobody expects steps or checkpoints of it.
    progress_time_.Remove(&progress_time_.Add(labels));
    checkpoint_time_.Remove(&checkpoint_time_.Add(labels));
    return;
  }
  Gauge& progress = progress_time_.Add(labels);
  if (job.metrics.step != seen.step || progress.Value() == 0)
    progress.Set(UnixSeconds(absl::Now()));
  seen.step = job.metrics.step;
  if (job.request != nullptr && job.request->training.checkpoints.has_value()) {
    Gauge& checkpoint = checkpoint_time_.Add(labels);
    const double written =
        job.checkpoint_time == absl::InfinitePast() ? 0 : UnixSeconds(job.checkpoint_time);
    if (checkpoint.Value() == 0) checkpoint.Set(UnixSeconds(absl::Now()));
    checkpoint.Set(std::max(checkpoint.Value(), written));
  }
  ShowMemory(job);
  if (job.metrics.step == 0) return;
  step_.Add(labels).Set(ToSeconds(job.metrics.step_time));
  recent_.Add(labels).Set(ToSeconds(job.metrics.recent_step_time));
  predicted_.Add(labels).Set(ToSeconds(job.metrics.predicted_step_time));
  drift_.Add(labels).Set(job.drift.has_value() ? job.drift->ratio : 0);
  loss_.Add(labels).Set(job.metrics.loss);
}

void JobSeries::ShowMemory(const Job& job) {
  for (const DeviceMemory& memory : job.metrics.memory) {
    if (memory.measured_peak <= 0) continue;
    const prometheus::Labels labels = {{"job", job.name()}, {"device", memory.name}};
    memory_.Add(labels).Set(static_cast<double>(memory.measured_peak));
    predicted_memory_.Add(labels).Set(static_cast<double>(memory.predicted_peak));
  }
}

void JobSeries::ShowStragglers(const Job& job, Seen& seen) {
  const auto series = [&](const std::string& device) -> Gauge& {
    return stragglers_.Add({{"job", job.name()}, {"device", device}});
  };
  std::set<std::string> slow;
  for (const JobStraggler& straggler : job.stragglers) {
    series(straggler.device).Set(straggler.times);
    slow.insert(straggler.device);
  }
  for (const std::string& device : seen.stragglers)
    if (!slow.contains(device)) stragglers_.Remove(&series(device));
  seen.stragglers = std::move(slow);
}

void JobSeries::Hide(const Job& job) {
  const prometheus::Labels labels = {{"job", job.name()}};
  for (Family<Gauge>* family : {&step_, &recent_, &predicted_, &drift_, &loss_, &restarts_,
                                &progress_time_, &checkpoint_time_})
    family->Remove(&family->Add(labels));
  for (const DeviceMemory& memory : job.metrics.memory) {
    const prometheus::Labels own = {{"job", job.name()}, {"device", memory.name}};
    memory_.Remove(&memory_.Add(own));
    predicted_memory_.Remove(&predicted_memory_.Add(own));
  }
}

}  // namespace stagewright
