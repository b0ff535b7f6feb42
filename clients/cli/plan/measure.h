// Strategies tried on workers: each is a job of a few steps whose measured step time is what
// planners that learn by trial are paid by instead of a simulation.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "clients/cli/connection.h"
#include "common/base/status.h"
#include "common/strategy/strategy.h"
#include "planner_service/planner/planner.h"
#include "stagewright/v1/job_service.pb.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

struct MeasureFlags {
  int64_t steps = 0;  // Steps of each job; 0: nothing is measured.
  std::string weights;
  std::string data;
};

// --measure-steps, --weights, --data. `flags` outlives the app.
void AddMeasureFlags(CLI::App& command, MeasureFlags& flags);

struct Measurement {
  double step_seconds = 0;  // Median of the job with the plan's strategy.
  int64_t jobs = 0;         // All jobs that ran.
  int64_t failed = 0;       // Jobs that ran and have no step time.
};

// Runs one job at a time on the workers of a planning service. Not thread-safe.
class StepMeasurer {
 public:
  // Jobs train the problem's graph on `devices` devices, those of its cluster. When no further job
  // can run at all, `context` is cancelled. What jobs write is removed with the measurer, as far as
  // it is seen from here.
  StepMeasurer(const v1::PlanningProblem& problem, int32_t devices, const MeasureFlags& flags,
               const Globals& globals, absl::Time deadline, SearchContext& context);
  ~StepMeasurer();
  StepMeasurer(const StepMeasurer&) = delete;
  StepMeasurer& operator=(const StepMeasurer&) = delete;

  // FAILED_PRECONDITION if the service has fewer devices than the problem's cluster.
  absl::Status CheckDevices();

  // The median step time of a job with this strategy, each strategy measured once. Strategies that
  // the evaluator rejects (over memory, ...) never reach the workers. An error: the job failed, or
  // was not done by the deadline and has been cancelled.
  MeasureStrategy RewardOf(const Problem& problem);

  // What is known of a strategy that was measured, and of all jobs so far.
  Measurement MeasurementOf(const v1::Strategy& strategy) const;
  // Why no further job can run: the service is unreachable or refuses all. OK otherwise.
  const absl::Status& status() const { return broken_; }

 private:
  absl::StatusOr<double> Measure(const Strategy& strategy);
  absl::StatusOr<v1::Job> RunToTheEnd(const v1::Strategy& strategy);
  void Cancel(const std::string& name);

  Connection connection_;
  const absl::Time deadline_;
  SearchContext& context_;
  const int32_t devices_;
  v1::SubmitJobRequest request_;
  std::map<std::string, absl::StatusOr<double>> known_;  // By serialized strategy.
  int64_t jobs_ = 0, failed_ = 0;
  absl::Status broken_;
};

}  // namespace stagewright::cli
