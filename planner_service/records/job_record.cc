#include "planner_service/records/job_record.h"

namespace stagewright {

const Job& ShownJob(const JobRecord& record) {
  return record.unstored.has_value() && record.told.has_value() ? *record.told : record.job;
}

void ForgetParts(JobRecord& record) {
  Job& job = record.job;
  job.graph.reset();
  job.planned_graph.reset();
  job.plan.reset();
  job.sequential_plan.reset();
  job.measurement.reset();
  record.told.reset();
  record.cluster.Clear();
  record.evaluations.clear();
  record.trace.Clear();
  record.measured.reset();
}

bool IsAtRest(const JobRecord& record) {
  return IsTerminal(record.job.state) && !record.unstored.has_value() &&
         record.write_steps == absl::InfiniteFuture() && !record.write_log &&
         !record.run.has_value();
}

}  // namespace stagewright
