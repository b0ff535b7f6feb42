#include "planner_service/jobs/job_proto.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/wire/graph_proto.h"
#include "common/wire/split_graph.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/training_proto.h"
#include "planner_service/jobs/job_plan.h"
#include "planner_service/wire/manual_devices.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright {
google::protobuf::Timestamp ToProto(absl::Time time) {
  const int64_t nanos = absl::ToUnixNanos(time);
  google::protobuf::Timestamp proto;
  proto.set_seconds(nanos / 1'000'000'000);
  proto.set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
  return proto;
}

absl::Time FromProto(const google::protobuf::Timestamp& proto) {
  return absl::FromUnixSeconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

JobState FromProto(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_PLANNING:
      return JobState::kPlanning;
    case v1::JOB_STATE_WAITING_FOR_DEVICES:
      return JobState::kWaitingForDevices;
    case v1::JOB_STATE_STARTING:
      return JobState::kStarting;
    case v1::JOB_STATE_RUNNING:
      return JobState::kRunning;
    case v1::JOB_STATE_RECOVERING:
      return JobState::kRecovering;
    case v1::JOB_STATE_SUCCEEDED:
      return JobState::kSucceeded;
    case v1::JOB_STATE_FAILED:
      return JobState::kFailed;
    case v1::JOB_STATE_CANCELLED:
      return JobState::kCancelled;
    default:
      return JobState::kPending;
  }
}

namespace {

absl::StatusOr<LossPolicy> FromProto(v1::LossPolicy policy) {
  switch (policy) {
    case v1::LOSS_POLICY_UNSPECIFIED:
    case v1::LOSS_POLICY_SHRINK:
      return LossPolicy::kShrink;
    case v1::LOSS_POLICY_WAIT:
      return LossPolicy::kWait;
    case v1::LOSS_POLICY_FAIL:
      return LossPolicy::kFail;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("spec.on_loss: unknown policy ", static_cast<int>(policy)));
  }
}

absl::StatusOr<GrowthPolicy> FromProto(v1::GrowthPolicy policy) {
  switch (policy) {
    case v1::GROWTH_POLICY_UNSPECIFIED:
    case v1::GROWTH_POLICY_BACK:
      return GrowthPolicy::kBack;
    case v1::GROWTH_POLICY_FREE:
      return GrowthPolicy::kFree;
    case v1::GROWTH_POLICY_NONE:
      return GrowthPolicy::kNone;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("spec.grow: unknown policy ", static_cast<int>(policy)));
  }
}

// The wire has its kinds in the order of EventKind, after `unspecified`.
EventKind FromProto(v1::EventKind kind) {
  return kind < v1::EVENT_KIND_SUBMITTED || kind > v1::EventKind_MAX
             ? EventKind::kState
             : static_cast<EventKind>(kind - v1::EVENT_KIND_SUBMITTED);
}

Event FromProto(const v1::Event& proto) {
  return {stagewright::FromProto(proto.time()),
          stagewright::FromProto(proto.last_time()),
          proto.count(),
          FromProto(proto.kind()),
          stagewright::FromProto(proto.state()),
          proto.message(),
          proto.job(),
          proto.worker(),
          proto.generation(),
          proto.step()};
}

v1::JobMetrics ToProto(const JobMetrics& metrics) {
  v1::JobMetrics proto;
  proto.set_step(metrics.step);
  proto.set_total_steps(metrics.total_steps);
  proto.set_loss(metrics.loss);
  proto.set_step_ns(metrics.step_time.count());
  proto.set_median_step_ns(metrics.median_step_time.count());
  proto.set_recent_step_ns(metrics.recent_step_time.count());
  proto.set_predicted_step_ns(metrics.predicted_step_time.count());
  proto.set_accuracy(metrics.accuracy);
  proto.set_evaluation_loss(metrics.evaluation_loss);
  proto.set_samples_per_second(metrics.samples_per_second);
  proto.set_skipped_steps(metrics.skipped_steps);
  proto.set_loss_scale(metrics.loss_scale);
  for (const DeviceMemory& memory : metrics.memory) {
    v1::DeviceMemory* out = proto.add_memory();
    out->set_device(memory.name);
    out->set_predicted_peak_bytes(memory.predicted_peak.count());
    out->set_measured_peak_bytes(memory.measured_peak.count());
    out->set_in_use_bytes(memory.in_use.count());
    out->set_reserved_bytes(memory.reserved.count());
    out->set_allocations(memory.allocations);
  }
  return proto;
}

// The plan says which device each entry of the memory is about.
JobMetrics FromProto(const v1::JobMetrics& proto, const v1::Plan& plan) {
  JobMetrics metrics;
  metrics.step = proto.step();
  metrics.total_steps = proto.total_steps();
  metrics.loss = proto.loss();
  metrics.step_time = Nanos(proto.step_ns());
  metrics.median_step_time = Nanos(proto.median_step_ns());
  metrics.recent_step_time = Nanos(proto.recent_step_ns());
  metrics.predicted_step_time = Nanos(proto.predicted_step_ns());
  metrics.accuracy = proto.accuracy();
  metrics.evaluation_loss = proto.evaluation_loss();
  metrics.samples_per_second = proto.samples_per_second();
  metrics.skipped_steps = proto.skipped_steps();
  metrics.loss_scale = proto.loss_scale();
  const auto& reports = plan.evaluation().devices();
  for (int i = 0; i < proto.memory_size(); ++i) {
    const v1::DeviceMemory& memory = proto.memory(i);
    metrics.memory.push_back({memory.device(), i < reports.size() ? reports[i].device() : -1,
                              Bytes(memory.predicted_peak_bytes()),
                              Bytes(memory.measured_peak_bytes()), Bytes(memory.in_use_bytes()),
                              Bytes(memory.reserved_bytes()), memory.allocations()});
  }
  return metrics;
}

constexpr char kByHand[] = "manual";  // The planner that takes plans by hand.

}  // namespace

v1::JobState ToProto(JobState state) {
  switch (state) {
    case JobState::kPending:
      return v1::JOB_STATE_PENDING;
    case JobState::kPlanning:
      return v1::JOB_STATE_PLANNING;
    case JobState::kWaitingForDevices:
      return v1::JOB_STATE_WAITING_FOR_DEVICES;
    case JobState::kStarting:
      return v1::JOB_STATE_STARTING;
    case JobState::kRunning:
      return v1::JOB_STATE_RUNNING;
    case JobState::kRecovering:
      return v1::JOB_STATE_RECOVERING;
    case JobState::kSucceeded:
      return v1::JOB_STATE_SUCCEEDED;
    case JobState::kFailed:
      return v1::JOB_STATE_FAILED;
    case JobState::kCancelled:
      return v1::JOB_STATE_CANCELLED;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

v1::Event ToProto(const Event& event) {
  v1::Event proto;
  *proto.mutable_time() = ToProto(event.first);
  *proto.mutable_last_time() = ToProto(event.last);
  proto.set_count(event.count);
  proto.set_kind(
      static_cast<v1::EventKind>(static_cast<int>(event.kind) + v1::EVENT_KIND_SUBMITTED));
  if (!event.job.empty()) proto.set_state(ToProto(event.state));
  proto.set_message(event.message);
  proto.set_job(event.job);
  proto.set_worker(event.worker);
  proto.set_generation(event.generation);
  proto.set_step(event.step);
  return proto;
}

absl::StatusOr<JobRequest> FromProto(const v1::JobSpec& spec) {
  JobRequest request;
  if (spec.has_graph()) {
    auto graph = FromProto(spec.graph());
    if (!graph.ok()) return Annotate(graph.status(), "spec.graph");
    auto lengths = LengthsFromProto(spec.graph(), *graph);
    if (!lengths.ok()) return Annotate(lengths.status(), "spec.graph");
    request.lengths = std::make_shared<const std::vector<Graph>>(*std::move(lengths));
    request.graph = std::make_shared<const Graph>(*std::move(graph));
  }
  request.weights_path = spec.weights_path();
  request.data_path = spec.data_path();
  request.output_path = spec.output_path();
  request.evaluation_data_path = spec.evaluation_data_path();
  ASSIGN_OR_RETURN(request.training, TrainingFromProto(spec));
  request.mini_batch = spec.mini_batch();
  request.steps = spec.steps();
  request.epochs = spec.epochs();
  request.planner = spec.planner();
  request.options = FromProto(spec.plan_options());
  if (spec.has_strategy()) {
    request.strategy = FromProto(spec.strategy());
    if (spec.plan_options().batch_statistics() != v1::BATCH_STATISTICS_UNSPECIFIED)
      request.strategy->batch_statistics = request.options.batch_statistics;
    const v1::OptimizerSharding sharding = spec.plan_options().optimizer_sharding();
    if (sharding != v1::OPTIMIZER_SHARDING_UNSPECIFIED && sharding != v1::OPTIMIZER_SHARDING_AUTO)
      request.strategy->optimizer_sharding = FromProto(sharding);
    if (spec.plan_options().bucket_bytes() > 0)
      request.strategy->bucket_bytes = request.options.bucket_bytes;
  }
  request.num_devices = spec.num_devices();
  request.found = !spec.plan_options().found_for().empty();
  if (request.found && request.strategy) {
    const std::vector<DeviceId> devices = WorkingDevices(*request.strategy);
    // What is no device its judge says better.
    if (!devices.empty() && devices.front().valid())
      request.strategy = Renumbered(*std::move(request.strategy), devices);
    if (request.num_devices == 0) request.num_devices = static_cast<int32_t>(devices.size());
  }
  // It waits for as many, and leaves the others to others.
  if (request.planner == kByHand) {
    ManualDevices devices = ManualDevicesOf(request.options.manual);
    if (request.num_devices == 0)
      request.num_devices = std::max(devices.numbered, static_cast<int32_t>(devices.named.size()));
    request.named_devices = std::move(devices.named);
  }
  request.step_timeout = absl::Nanoseconds(spec.step_timeout_ns());
  request.max_restarts = spec.max_restarts();
  ASSIGN_OR_RETURN(request.on_loss, FromProto(spec.on_loss()));
  ASSIGN_OR_RETURN(request.grow, FromProto(spec.grow()));
  request.priority = spec.priority();
  request.preemptible = spec.preemptible();
  request.records = {spec.records().steps(), spec.records().compare_with()};
  return request;
}

void SetSpec(v1::JobSpec spec, Job& job) {
  job.graph = Sealed<v1::Graph>(std::move(*spec.mutable_graph()));
  job.planned_graph = job.graph;
  spec.clear_graph();
  job.spec = std::make_shared<const v1::JobSpec>(std::move(spec));
}

std::optional<Job> ByNumber(const Job& job) {
  const v1::PlanOptions& options = job.spec->plan_options();
  if (!job.request->found || job.request->named_devices.empty()) return std::nullopt;
  const std::string manual =
      ByNumber(options.manual(), {options.found_for().begin(), options.found_for().end()});
  Job numbered = job;
  v1::JobSpec spec = *job.spec;
  spec.mutable_plan_options()->set_manual(manual);
  numbered.spec = std::make_shared<const v1::JobSpec>(std::move(spec));
  JobRequest request = *job.request;
  request.options.manual = manual;
  request.named_devices.clear();
  numbered.request = std::make_shared<const JobRequest>(std::move(request));
  return numbered;
}

v1::Straggler ToProto(const JobStraggler& straggler) {
  v1::Straggler proto;
  proto.set_device(straggler.device);
  proto.set_stage(straggler.stage);
  proto.set_ratio(straggler.times);
  proto.set_since_step(straggler.since_step);
  proto.set_busy_ns(straggler.busy.count());
  proto.set_expected_ns(straggler.expected.count());
  return proto;
}

JobStraggler FromProto(const v1::Straggler& proto) {
  return {proto.device(),     proto.stage(),          proto.ratio(),
          proto.since_step(), Nanos(proto.busy_ns()), Nanos(proto.expected_ns())};
}

v1::Job ToProto(const Job& job, GraphDetail detail) {
  v1::Job proto;
  proto.set_name(job.name());
  proto.set_state(ToProto(job.state));
  proto.set_message(job.message);
  *proto.mutable_spec() = *job.spec;
  if (detail == GraphDetail::kNames)
    *proto.mutable_spec()->mutable_graph() = NamesOf(*job.planned_graph);
  const bool plans = detail != GraphDetail::kApart;
  if (plans && job.plan != nullptr) *proto.mutable_plan() = *job.plan;
  if (plans && job.sequential_plan != nullptr)
    *proto.mutable_sequential_plan() = *job.sequential_plan;
  *proto.mutable_metrics() = ToProto(job.metrics);
  *proto.mutable_create_time() = ToProto(job.create_time);
  if (job.end_time != absl::InfiniteFuture()) *proto.mutable_end_time() = ToProto(job.end_time);
  proto.set_generation(job.generation);
  proto.set_version(job.version);
  proto.set_checkpoint_path(job.checkpoint_path);
  for (const std::string& device : job.devices) proto.add_devices(device);
  for (const std::string& warning : job.warnings) proto.add_warnings(warning);
  proto.set_restarts(job.restarts);
  proto.set_checkpoint_step(job.checkpoint_step);
  proto.set_failure_code(job.failure_code);
  proto.set_replans(job.replans);
  proto.set_resume_from(job.resume_from);
  proto.set_queue_position(job.queue_position);
  proto.set_preemptions(job.preemptions);
  proto.set_preempted(job.preempted);
  proto.set_preempted_devices(job.preempted_devices);
  proto.set_most_devices(job.most_devices);
  proto.set_growth(job.growth);
  if (job.drift.has_value()) {
    proto.mutable_drift()->set_ratio(job.drift->ratio);
    proto.mutable_drift()->set_since_step(job.drift->since_step);
    for (const std::string& cause : job.drift->causes) proto.mutable_drift()->add_causes(cause);
  }
  for (const JobStraggler& straggler : job.stragglers) *proto.add_stragglers() = ToProto(straggler);
  if (job.checkpoint_time != absl::InfinitePast())
    *proto.mutable_checkpoint_time() = ToProto(job.checkpoint_time);
  if (detail == GraphDetail::kNone) return proto;
  if (job.measurement != nullptr) *proto.mutable_measurement() = *job.measurement;
  for (const Event& event : job.events) *proto.add_events() = ToProto(event);
  return proto;
}

absl::StatusOr<Job> FromProto(v1::Job proto) {
  Job job;
  job.number = JobNumber(proto.name());
  if (job.number < 0) return absl::InvalidArgumentError("has no job name");
  job.state = FromProto(proto.state());
  job.message = proto.message();
  job.metrics = FromProto(proto.metrics(), proto.plan());
  job.create_time = FromProto(proto.create_time());
  if (proto.has_end_time()) job.end_time = FromProto(proto.end_time());
  job.generation = proto.generation();
  job.version = proto.version();
  job.checkpoint_path = proto.checkpoint_path();
  job.devices.assign(proto.devices().begin(), proto.devices().end());
  job.warnings.assign(proto.warnings().begin(), proto.warnings().end());
  job.restarts = proto.restarts();
  job.checkpoint_step = proto.checkpoint_step();
  job.failure_code = proto.failure_code();
  job.replans = proto.replans();
  job.resume_from = proto.resume_from();
  job.preemptions = proto.preemptions();
  job.preempted = proto.preempted();
  job.preempted_devices = proto.preempted_devices();
  job.most_devices = proto.most_devices();
  job.growth = proto.growth();
  if (proto.has_drift()) {
    job.drift = {proto.drift().ratio(),
                 {proto.drift().causes().begin(), proto.drift().causes().end()},
                 proto.drift().since_step()};
  }
  for (const v1::Straggler& straggler : proto.stragglers())
    job.stragglers.push_back(FromProto(straggler));
  if (proto.has_checkpoint_time()) job.checkpoint_time = FromProto(proto.checkpoint_time());
  for (const v1::Event& event : proto.events()) job.events.push_back(FromProto(event));
  if (proto.has_measurement())
    job.measurement = std::make_shared<const v1::StepMeasurement>(proto.measurement());
  SetSpec(std::move(*proto.mutable_spec()), job);
  if (proto.has_plan()) {
    const std::vector<OperatorSplit> splits = FromProto(proto.plan().strategy()).splits;
    if (!splits.empty()) {
      ASSIGN_OR_RETURN(v1::Graph split, SplitGraph(*job.graph, splits));
      job.planned_graph = Sealed<v1::Graph>(std::move(split));
    }
    job.plan = Sealed<v1::Plan>(std::move(*proto.mutable_plan()));
  }
  if (proto.has_sequential_plan())
    job.sequential_plan = Sealed<v1::Plan>(std::move(*proto.mutable_sequential_plan()));
  return job;
}

}  // namespace stagewright
