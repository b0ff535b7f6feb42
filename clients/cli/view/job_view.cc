#include "clients/cli/view/job_view.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "clients/cli/view/event_view.h"
#include "clients/cli/view/gpu_view.h"
#include "clients/cli/view/table.h"
#include "common/base/units.h"
#include "common/program/action.h"
#include "common/wire/job_state.h"

namespace stagewright::cli {
namespace {

constexpr int kBarWidth = 30;

// The typical step of late; of jobs that an older planner ran, of all steps.
int64_t MeasuredStep(const v1::JobMetrics& metrics) {
  return metrics.recent_step_ns() > 0 ? metrics.recent_step_ns() : metrics.median_step_ns();
}

std::string DurationText(int64_t nanos) { return nanos > 0 ? FormatDuration(Nanos(nanos)) : "-"; }

std::string DriftText(const v1::JobDrift& drift) {
  return absl::StrFormat("%+.0f %% since step %d", drift.ratio() * 100, drift.since_step());
}

std::string StragglerLine(const v1::Straggler& straggler) {
  return absl::StrFormat(
      "%s takes %.1f times as long as its like since step %d: stage %d, %s of a "
      "step instead of %s",
      straggler.device(), straggler.ratio(), straggler.since_step(), straggler.stage(),
      FormatDuration(Nanos(straggler.busy_ns())), FormatDuration(Nanos(straggler.expected_ns())));
}

nlohmann::json StragglerJson(const v1::Straggler& straggler) {
  return {{"device", straggler.device()},
          {"stage", straggler.stage()},
          {"ratio", straggler.ratio()},
          {"since_step", straggler.since_step()},
          {"busy_seconds", ToSeconds(Nanos(straggler.busy_ns()))},
          {"expected_seconds", ToSeconds(Nanos(straggler.expected_ns()))}};
}

nlohmann::json ActionJson(const v1::ActionTime& action) {
  nlohmann::json json = {
      {"kind", std::string(ActionKindName(static_cast<ActionKind>(action.kind() - 1)))},
      {"stage", action.stage()},
      {"devices", std::vector<std::string>(action.devices().begin(), action.devices().end())},
      {"samples", action.samples()},
      {"count", action.count()},
      {"predicted_seconds", ToSeconds(Nanos(action.predicted_ns()))},
      {"measured_seconds", ToSeconds(Nanos(action.measured_ns()))}};
  if (action.size_bytes() > 0) json["bytes"] = action.size_bytes();
  return json;
}

nlohmann::json OperatorJson(const v1::OperatorTime& timed, const v1::Graph& graph) {
  return {{"node", timed.node() < graph.nodes_size() ? graph.nodes(timed.node()).name() : ""},
          {"stage", timed.stage()},
          {"device", timed.device()},
          {"samples", timed.samples()},
          {"forward_seconds", ToSeconds(Nanos(timed.forward_ns()))},
          {"backward_seconds", ToSeconds(Nanos(timed.backward_ns()))}};
}

std::string StepText(const v1::JobMetrics& metrics) {
  return metrics.total_steps() > 0 ? absl::StrCat(metrics.step(), "/", metrics.total_steps()) : "-";
}

}  // namespace

std::string JobsText(const v1::ListJobsResponse& jobs) {
  Table table({"job", "name", "state", ">priority", ">queue", ">step", ">loss", ">step time",
               ">predicted", ">restarts", ">checkpoint", "created (UTC)", "message"});
  for (const v1::Job& job : jobs.jobs()) {
    table.Add({job.name(), job.spec().display_name(), JobStateName(job.state()),
               absl::StrCat(job.spec().priority()),
               job.queue_position() > 0 ? absl::StrCat(job.queue_position()) : "-",
               StepText(job.metrics()),
               job.metrics().step() > 0 ? absl::StrFormat("%.4f", job.metrics().loss()) : "-",
               DurationText(MeasuredStep(job.metrics())),
               DurationText(job.metrics().predicted_step_ns()), absl::StrCat(job.restarts()),
               job.checkpoint_step() > 0 ? absl::StrCat(job.checkpoint_step()) : "-",
               TimeText(job.create_time()), job.message()});
  }
  return table.ToString();
}

nlohmann::json JobJson(const v1::Job& job) {
  const v1::JobMetrics& metrics = job.metrics();
  nlohmann::json json = {
      {"name", job.name()},
      {"display_name", job.spec().display_name()},
      {"state", JobStateName(job.state())},
      {"message", job.message()},
      {"owner", job.spec().owner()},
      {"tenant", job.spec().tenant()},
      {"priority", job.spec().priority()},
      {"preemptible", job.spec().preemptible()},
      {"queue_position", job.queue_position()},
      {"preemptions", job.preemptions()},
      {"preempted", job.preempted()},
      {"version", job.version()},
      {"step", metrics.step()},
      {"total_steps", metrics.total_steps()},
      {"checkpoint_step", job.checkpoint_step()},
      {"restarts", job.restarts()},
      {"replans", job.replans()},
      {"skipped_steps", metrics.skipped_steps()},
      {"loss_scale", metrics.loss_scale()},
      {"loss", metrics.loss()},
      {"step_seconds", ToSeconds(Nanos(metrics.step_ns()))},
      {"median_step_seconds", ToSeconds(Nanos(metrics.median_step_ns()))},
      {"recent_step_seconds", ToSeconds(Nanos(metrics.recent_step_ns()))},
      {"predicted_step_seconds", ToSeconds(Nanos(metrics.predicted_step_ns()))},
      {"devices", std::vector<std::string>(job.devices().begin(), job.devices().end())},
      {"most_devices", job.most_devices()},
      {"growth", job.growth()},
      {"create_time", TimeJson(job.create_time())},
      {"checkpoint_time", TimeJson(job.checkpoint_time())},
      {"end_time", TimeJson(job.end_time())}};
  if (job.warnings_size() > 0) {
    json["warnings"] = std::vector<std::string>(job.warnings().begin(), job.warnings().end());
  }
  if (job.has_drift()) {
    const auto& causes = job.drift().causes();
    json["drift"] = {{"ratio", job.drift().ratio()},
                     {"since_step", job.drift().since_step()},
                     {"causes", std::vector<std::string>(causes.begin(), causes.end())}};
  }
  for (const v1::Straggler& straggler : job.stragglers())
    json["stragglers"].push_back(StragglerJson(straggler));
  if (job.has_measurement()) {
    nlohmann::json actions = nlohmann::json::array(), operators = nlohmann::json::array();
    for (const v1::ActionTime& action : job.measurement().actions())
      actions.push_back(ActionJson(action));
    for (const v1::OperatorTime& timed : job.measurement().operators())
      operators.push_back(OperatorJson(timed, job.spec().graph()));
    json["measurement"] = {{"step", job.measurement().step()},
                           {"steps", job.measurement().steps()},
                           {"actions", std::move(actions)},
                           {"operators", std::move(operators)}};
  }
  json["memory"] = nlohmann::json::array();
  for (const v1::DeviceMemory& memory : metrics.memory()) {
    json["memory"].push_back({{"device", memory.device()},
                              {"predicted_peak_bytes", memory.predicted_peak_bytes()},
                              {"measured_peak_bytes", memory.measured_peak_bytes()},
                              {"in_use_bytes", memory.in_use_bytes()},
                              {"reserved_bytes", memory.reserved_bytes()},
                              {"allocations", memory.allocations()}});
  }
  if (metrics.accuracy() >= 0) {
    json["accuracy"] = metrics.accuracy();
  }
  if (metrics.evaluation_loss() != 0) json["evaluation_loss"] = metrics.evaluation_loss();
  if (!job.checkpoint_path().empty()) json["checkpoint"] = job.checkpoint_path();
  return json;
}

namespace {

std::string AvailabilityName(v1::WorkerAvailability availability) {
  switch (availability) {
    case v1::WORKER_AVAILABILITY_CORDONED:
      return "cordoned";
    case v1::WORKER_AVAILABILITY_DRAINING:
      return "draining";
    default:
      return "open";
  }
}

// Whether a device takes jobs, and if not, why.
std::string Availability(const v1::Worker& worker, const v1::WorkerDevice& device) {
  if (!device.ending().empty()) return absl::StrCat("ending ", device.ending());
  if (device.has_quarantined_until())
    return absl::StrCat("quarantined until ", TimeText(device.quarantined_until()));
  return AvailabilityName(worker.availability());
}

}  // namespace

std::string WorkersText(const v1::ListWorkersResponse& workers) {
  Table table({"worker", "device", "kind", ">memory", "job", "takes jobs", "version", "address"});
  for (const v1::Worker& worker : workers.workers()) {
    for (const v1::WorkerDevice& device : worker.devices()) {
      table.Add({worker.name(), device.name(), device.kind(),
                 FormatBytes(Bytes(device.memory_bytes())),
                 device.job().empty() ? "-" : device.job(), Availability(worker, device),
                 worker.version(), worker.address()});
    }
  }
  return table.ToString();
}

nlohmann::json WorkersJson(const v1::ListWorkersResponse& workers) {
  nlohmann::json list = nlohmann::json::array();
  for (const v1::Worker& worker : workers.workers()) {
    nlohmann::json devices = nlohmann::json::array();
    for (const v1::WorkerDevice& device : worker.devices()) {
      nlohmann::json& shown = devices.emplace_back(nlohmann::json{
          {"name", device.name()},
          {"kind", device.kind()},
          {"memory_bytes", device.memory_bytes()},
          {"job", device.job()},
          {"ending", device.ending()},
      });
      if (!device.has_quarantined_until()) continue;
      shown["quarantined_until"] = TimeJson(device.quarantined_until());
      shown["quarantine_reason"] = device.quarantine_reason();
    }
    nlohmann::json& told =
        list.emplace_back(nlohmann::json{{"name", worker.name()},
                                         {"version", worker.version()},
                                         {"address", worker.address()},
                                         {"last_heartbeat", TimeJson(worker.last_heartbeat_time())},
                                         {"availability", AvailabilityName(worker.availability())},
                                         {"devices", std::move(devices)}});
    if (worker.has_gpu_machine()) told["gpu_machine"] = GpuMachineJson(worker.gpu_machine());
  }
  return {{"workers", std::move(list)}};
}

std::string ProgressLine(const v1::Job& job) {
  const v1::JobMetrics& metrics = job.metrics();
  if (metrics.total_steps() == 0) {
    return absl::StrCat(JobStateName(job.state()), job.message().empty() ? "" : ": ",
                        job.message());
  }
  const auto filled = static_cast<int>(
      kBarWidth * std::min<int64_t>(metrics.step(), metrics.total_steps()) / metrics.total_steps());
  std::string line = absl::StrFormat(
      "[%s%s] step %d/%d  loss %.4f  %s/step, predicted %s", std::string(filled, '='),
      std::string(kBarWidth - filled, ' '), metrics.step(), metrics.total_steps(), metrics.loss(),
      FormatDuration(Nanos(MeasuredStep(metrics))), DurationText(metrics.predicted_step_ns()));
  if (job.has_drift()) absl::StrAppend(&line, " (", DriftText(job.drift()), ")");
  return line;
}

std::string JobSummary(const v1::Job& job) {
  const v1::JobMetrics& metrics = job.metrics();
  std::string out =
      absl::StrCat(job.name(), " ", JobStateName(job.state()),
                   job.message().empty() ? "" : absl::StrCat(": ", job.message()), "\n");
  for (const std::string& warning : job.warnings())
    absl::StrAppend(&out, "  warning          ", warning, "\n");
  if (!job.plan().provenance().cluster().empty())
    absl::StrAppend(&out, "  planned for      ", job.plan().provenance().cluster(), "\n");
  if (metrics.step() > 0) {
    absl::StrAppend(&out, absl::StrFormat("  steps            %d of %d, last loss %.4f\n",
                                          metrics.step(), metrics.total_steps(), metrics.loss()));
    if (metrics.skipped_steps() > 0)
      absl::StrAppend(&out, "  skipped updates  ", metrics.skipped_steps(), "\n");
    if (metrics.loss_scale() > 0)
      absl::StrAppend(&out, "  scale of loss    ", metrics.loss_scale(), "\n");
    absl::StrAppend(
        &out, "  step time        ", FormatDuration(Nanos(MeasuredStep(metrics))),
        " measured (median), ", FormatDuration(Nanos(metrics.predicted_step_ns())),
        job.plan().lengths_size() > 0 ? " predicted for the largest samples\n" : " predicted\n");
  }
  if (job.has_drift()) {
    absl::StrAppend(&out, "  drift            ", DriftText(job.drift()), "\n");
    for (const std::string& cause : job.drift().causes())
      absl::StrAppend(&out, "                   ", cause, "\n");
  }
  for (const v1::Straggler& straggler : job.stragglers())
    absl::StrAppend(&out, "  straggler        ", StragglerLine(straggler), "\n");
  if (!job.growth().empty()) absl::StrAppend(&out, "  growth           ", job.growth(), "\n");
  if (job.replans() > 0) absl::StrAppend(&out, "  plans changed    ", job.replans(), "\n");
  for (const v1::DeviceMemory& memory : metrics.memory()) {
    if (memory.measured_peak_bytes() == 0) continue;
    absl::StrAppend(&out, "  peak memory      ", FormatBytes(Bytes(memory.measured_peak_bytes())),
                    " measured, ", FormatBytes(Bytes(memory.predicted_peak_bytes())),
                    " predicted on ", memory.device(), "\n");
  }
  if (metrics.accuracy() >= 0) {
    absl::StrAppend(&out,
                    absl::StrFormat("  test accuracy    %.2f %%\n", metrics.accuracy() * 100));
  }
  if (!job.checkpoint_path().empty())
    absl::StrAppend(&out, "  checkpoint       ", job.checkpoint_path(), "\n");
  return out;
}

std::string SpecText(const v1::Job& job) {
  const v1::JobSpec& spec = job.spec();
  const std::string length = spec.steps() > 0 ? absl::StrCat(spec.steps(), " steps")
                                              : absl::StrCat(spec.epochs(), " epochs");
  std::string out = absl::StrCat(
      "  name             ", spec.display_name(), "\n  created (UTC)    ",
      TimeText(job.create_time()), "\n  ended (UTC)      ", TimeText(job.end_time()),
      "\n  data             ", spec.data_path(), "\n  weights          ", spec.weights_path(),
      "\n  output           ", spec.output_path(), "\n  length           ", length, " of ",
      spec.mini_batch(), " samples\n  runs             ", job.generation(), ", restarts ",
      job.restarts(), " of ", spec.max_restarts(), "\n");
  if (!spec.owner().empty()) {
    absl::StrAppend(&out, "  owner            ", spec.owner(),
                    spec.tenant().empty() ? "" : " of tenant ", spec.tenant(), "\n");
  }
  absl::StrAppend(&out, "  priority         ", spec.priority(),
                  spec.preemptible() ? ", preemptible" : "");
  if (job.preemptions() > 0)
    absl::StrAppend(&out, ", preempted ", job.preemptions(),
                    job.preemptions() == 1 ? " time" : " times");
  absl::StrAppend(&out, "\n");
  if (job.queue_position() > 0) {
    absl::StrAppend(&out, "  queue            place ", job.queue_position(), ": ", job.message(),
                    "\n");
  }
  if (!spec.resume_path().empty())
    absl::StrAppend(&out, "  resumes          ", spec.resume_path(), "\n");
  if (job.checkpoint_step() > 0) {
    absl::StrAppend(&out, "  last checkpoint  step ", job.checkpoint_step(), ", ",
                    TimeText(job.checkpoint_time()), " UTC\n");
  }
  absl::StrAppend(&out, "  devices          ", absl::StrJoin(job.devices(), ", "), "\n");
  return out;
}

nlohmann::json SpecJson(const v1::JobSpec& spec) {
  return {{"weights_path", spec.weights_path()},
          {"data_path", spec.data_path()},
          {"evaluation_data_path", spec.evaluation_data_path()},
          {"output_path", spec.output_path()},
          {"resume_path", spec.resume_path()},
          {"overwrite", spec.overwrite()},
          {"mini_batch", spec.mini_batch()},
          {"steps", spec.steps()},
          {"epochs", spec.epochs()},
          {"planner", spec.planner()},
          {"devices", spec.num_devices()},
          {"max_restarts", spec.max_restarts()}};
}

std::string MeasurementText(const v1::Job& job) {
  if (job.measurement().actions().empty()) return "";
  Table table({"stage", "action", "on", ">samples", ">a step", ">measured", ">predicted", ">off"});
  for (const v1::ActionTime& action : job.measurement().actions()) {
    const double off = action.predicted_ns() > 0
                           ? static_cast<double>(action.measured_ns()) /
                                     static_cast<double>(action.predicted_ns()) -
                                 1
                           : 0;
    table.Add({absl::StrCat(action.stage()),
               std::string(ActionKindName(static_cast<ActionKind>(action.kind() - 1))),
               absl::StrJoin(action.devices(),
                             action.count() > 0 && action.size_bytes() > 0 ? " - " : ", "),
               action.samples() > 0 ? absl::StrCat(action.samples()) : "-",
               absl::StrCat(action.count()), DurationText(action.measured_ns()),
               DurationText(action.predicted_ns()), absl::StrFormat("%+.0f %%", off * 100)});
  }
  return table.ToString();
}

}  // namespace stagewright::cli
