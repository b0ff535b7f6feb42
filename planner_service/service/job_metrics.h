// What operators see of jobs. Series of a job go when it ends; counters stay.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "planner_service/jobs/job.h"

namespace stagewright {

// What a failed job failed of, as a label: "worker_lost", "planning", "starting", a code that a
// worker gave such as "resource_exhausted", or "other".
std::string FailureCause(const Job& job, JobState before);

// Not thread-safe. The registry outlives it.
class JobSeries {
 public:
  explicit JobSeries(prometheus::Registry& registry);

  // After every change of a job until it has ended. What was never seen before its end counts
  // among AddEnded's.
  void Observe(const Job& job);
  void Count(const Event& event);
  // So many more jobs are known that ended so, of which nothing was observed; fewer if they were
  // forgotten.
  void AddEnded(JobState state, int64_t jobs);

 private:
  struct Seen {
    JobState state;
    int64_t step = 0;
    bool started = false;
    std::string waits_for;  // Job::waits_for, since when.
    absl::Time since;
    std::set<std::string> stragglers;  // Devices that have a series.
  };

  void CountEnd(const Job& job, JobState before);
  void ShowWait(const Job& job, Seen& seen);
  void Show(const Job& job, Seen& seen);
  void ShowMemory(const Job& job);
  void ShowStragglers(const Job& job, Seen& seen);
  void Hide(const Job& job);

  prometheus::Family<prometheus::Gauge>&states_, &step_, &recent_, &predicted_, &drift_, &loss_,
      &memory_, &predicted_memory_, &restarts_, &progress_time_, &checkpoint_time_, &queued_,
      &stragglers_;
  prometheus::Family<prometheus::Counter>&ended_, &queue_seconds_, &job_events_, &worker_events_;
  prometheus::Histogram& wait_seconds_;
  std::map<int64_t, Seen> seen_;  // Jobs that have not ended.
};

}  // namespace stagewright
