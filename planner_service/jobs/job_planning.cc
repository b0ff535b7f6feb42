// From a submitted spec to a plan on chosen devices.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/lowering/lower.h"
#include "common/wire/graph_proto.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/topology_proto.h"
#include "planner_service/jobs/job_cluster.h"
#include "planner_service/jobs/job_manager.h"
#include "planner_service/jobs/job_plan.h"

namespace stagewright {

struct JobManager::PlanResult {
  absl::Status status;
  JobPlan plan;
};

void JobManager::Advance() {
  if (suspended_) return;
  for (auto& [number, record] : jobs_) {
    if (record.job.state() == v1::JOB_STATE_PENDING) StartPlanning(record);
    if (record.job.state() == v1::JOB_STATE_WAITING_FOR_DEVICES) TryStart(record);
  }
}

void JobManager::StartPlanning(Record& record) {
  std::vector<RegisteredDevice> devices = registry_->Devices(/*free_only=*/true);
  auto wanted = static_cast<size_t>(record.job.spec().num_devices());
  // After a loss the job goes on with what is left.
  if (record.job.restarts() > 0) wanted = std::min(wanted, devices.size());
  if (devices.empty() || devices.size() < wanted) {
    const std::string message = wanted == 0
                                    ? "waiting for a free device"
                                    : absl::StrCat("waiting for ", wanted, " free devices, ",
                                                   devices.size(), " are connected");
    if (record.job.message() != message) Transition(record, v1::JOB_STATE_PENDING, message);
    return;
  }
  if (wanted > 0) devices.resize(wanted);
  auto cluster = JobCluster(devices);
  if (!cluster.ok())
    return End(record, v1::JOB_STATE_FAILED, std::string(cluster.status().message()));

  record.cluster = ToProto(*cluster);
  record.job.clear_devices();
  record.worker_devices.clear();
  for (size_t i = 0; i < devices.size(); ++i) {
    record.job.add_devices(devices[i].QualifiedName());
    record.worker_devices[devices[i].worker].push_back(static_cast<int32_t>(i));
  }
  Transition(record, v1::JOB_STATE_PLANNING,
             absl::StrCat("planning for ", devices.size(), " devices"));
  if (IsTerminal(record.job.state())) return;

  record.planning = std::make_shared<SearchContext>(
      SearchContext::Clock::now() + absl::ToChronoNanoseconds(options_.planning_timeout));
  auto spec = std::make_shared<const v1::JobSpec>(record.job.spec());
  auto shared_cluster = std::make_shared<const Cluster>(*std::move(cluster));
  const absl::Status queued =
      pool_->Submit([this, name = record.job.name(), generation = record.job.generation(), spec,
                     shared_cluster, context = record.planning] {
        PlanResult result;
        auto plan = PlanJob(*spec, *shared_cluster, options_.default_planner, *context);
        result.status = plan.status();
        if (plan.ok()) result.plan = *std::move(plan);
        OnPlanned(name, generation, std::move(result));
      });
  if (queued.ok()) {
    ++planning_;
  } else {
    record.planning.reset();
    Transition(record, v1::JOB_STATE_PENDING, std::string(queued.message()));
  }
}

void JobManager::OnPlanned(const std::string& name, int64_t generation, PlanResult result) {
  absl::MutexLock lock(&mutex_);
  --planning_;
  if (suspended_) return;  // The service is ending, not the job: the next one plans it.
  Record* record = Find(name);
  if (record == nullptr || record->job.generation() != generation ||
      record->job.state() != v1::JOB_STATE_PLANNING)
    return;
  record->planning.reset();
  if (!result.status.ok())
    return End(*record, v1::JOB_STATE_FAILED, std::string(result.status.message()));

  record->trace.mutable_predicted()->Swap(
      result.plan.best.mutable_evaluation()->mutable_timeline());
  *record->trace.mutable_devices() = record->job.devices();
  record->evaluation_program = std::move(result.plan.evaluation_program);
  record->length_evaluation_programs = std::move(result.plan.length_evaluation_programs);
  *record->job.mutable_plan() = std::move(result.plan.best);
  record->job.clear_warnings();
  for (std::string& warning : result.plan.warnings) record->job.add_warnings(std::move(warning));
  record->job.mutable_metrics()->set_predicted_step_ns(
      record->job.plan().evaluation().iteration_ns());
  record->job.mutable_metrics()->clear_memory();
  for (const v1::DeviceReport& device : record->job.plan().evaluation().devices()) {
    v1::DeviceMemory* memory = record->job.mutable_metrics()->add_memory();
    memory->set_device(device.name());
    memory->set_predicted_peak_bytes(device.peak_memory_bytes());
  }
  if (result.plan.sequential.has_value())
    *record->job.mutable_sequential_plan() = *std::move(result.plan.sequential);
  Transition(*record, v1::JOB_STATE_WAITING_FOR_DEVICES, "");
  Advance();
}

}  // namespace stagewright
