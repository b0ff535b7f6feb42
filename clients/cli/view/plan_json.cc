#include "clients/cli/view/plan_json.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/cli/view/explanation_json.h"
#include "clients/cli/view/plan_figures.h"
#include "clients/cli/view/schedule_text.h"
#include "clients/cli/view/stage_dag.h"
#include "clients/cli/view/stage_names.h"
#include "common/base/units.h"
#include "common/strategy/batch_statistics.h"
#include "common/strategy/orders.h"
#include "common/training/names.h"
#include "common/training/precision.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/training_proto.h"

namespace stagewright::cli {
namespace {

nlohmann::json StageJson(const v1::Plan& plan, int32_t s, const PlanContext& context) {
  const v1::Stage& stage = plan.strategy().stages(s);
  const v1::StageReport& report = plan.evaluation().stages(s);
  const std::vector<std::vector<int32_t>> successors = Successors(plan.strategy());
  return {{"stage", s},
          {"operators", std::vector<int32_t>(stage.nodes().begin(), stage.nodes().end())},
          {"nodes", Nodes(stage, context)},
          {"modules", Modules(stage, context)},
          {"devices", Devices(stage, context)},
          {"successors", successors[s]},
          {"micro_batch_size", stage.micro_batch()},
          {"schedule", ScheduleText(plan.strategy(), s)},
          {"k", stage.k()},
          {"in_flight", stage.in_flight()},
          {"recompute", stage.recompute()},
          {"in_flight_samples", report.in_flight()},
          {"memory_bytes", report.peak_memory_bytes()},
          {"time_per_sample", report.seconds_per_sample()}};
}

// As a plan by hand has them, which is judged on a cluster that may number devices otherwise.
std::vector<std::string> Orders(const v1::Strategy& strategy, const PlanContext& context) {
  std::vector<std::string> lines;
  for (const DeviceOrder& order : FromProto(strategy).orders) {
    std::string line(absl::StripAsciiWhitespace(OrdersToText({order})));
    const size_t device = order.device.index();
    if (device < context.device_names.size() && !context.device_names[device].empty())
      line = absl::StrCat("device ", context.device_names[device], line.substr(line.find(':')));
    lines.push_back(std::move(line));
  }
  return lines;
}

// As --precision names it; that of the graph where an older planner did not say.
std::string PrecisionText(v1::Precision precision) {
  return std::string(NameIn(kPrecisionNames, FromProto(precision, "").value_or(Precision::kGraph)));
}

nlohmann::json OnePlanJson(const v1::Plan& plan, const PlanContext& context) {
  int64_t micro_batch = 0;
  nlohmann::json stages = nlohmann::json::array();
  for (int32_t s = 0; s < plan.strategy().stages_size(); ++s) {
    micro_batch = std::max(micro_batch, plan.strategy().stages(s).micro_batch());
    stages.push_back(StageJson(plan, s, context));
  }
  nlohmann::json devices = nlohmann::json::array();
  for (const v1::DeviceReport& device : plan.evaluation().devices()) {
    devices.push_back({{"device", device.name()},
                       {"busy_seconds", ToSeconds(Nanos(device.busy_ns()))},
                       {"peak_memory_bytes", device.peak_memory_bytes()},
                       {"memory_budget_bytes", device.memory_budget_bytes()}});
  }
  nlohmann::json json = {
      {"kind", plan.strategy().kind() == v1::STRATEGY_KIND_SEQUENTIAL ? "sequential" : "graph"},
      {"iteration_seconds", ToSeconds(Nanos(plan.evaluation().iteration_ns()))},
      {"samples_per_second", plan.evaluation().samples_per_second()},
      {"depth", plan.evaluation().depth()},
      {"bubble_ratio", plan.evaluation().bubble_ratio()},
      {"asynchronous", plan.strategy().asynchronous()},
      {"vertical_sync", plan.strategy().vertical_sync()},
      {"batch_statistics", BatchStatisticsName(FromProto(plan.strategy().batch_statistics()))},
      {"mini_batch_size", plan.strategy().mini_batch()},
      {"micro_batch_size", micro_batch},
      {"devices_used", DevicesUsed(plan.strategy())},
      {"peak_memory_bytes", PeakMemory(plan).count()},
      {"planner", plan.provenance().planner()},
      {"cost_model", plan.provenance().cost_model()},
      {"precision", PrecisionText(plan.provenance().precision())},
      {"cluster", plan.provenance().cluster()},
      {"fingerprint", absl::StrFormat("%016x", plan.fingerprint())},
      {"stages", std::move(stages)},
      {"devices", std::move(devices)}};
  if (plan.strategy().bucket_bytes() > 0) json["bucket_bytes"] = plan.strategy().bucket_bytes();
  const OptimizerSharding sharding = FromProto(plan.strategy().optimizer_sharding());
  if (sharding != OptimizerSharding::kNone)
    json["optimizer_sharding"] = OptimizerShardingName(sharding);
  for (const v1::LengthPlan& length : plan.lengths()) {
    json["lengths"].push_back(
        {{"samples", length.samples()},
         {"iteration_seconds", ToSeconds(Nanos(length.evaluation().iteration_ns()))},
         {"samples_per_second", length.evaluation().samples_per_second()},
         {"peak_memory_bytes", PeakMemory(length.evaluation()).count()}});
  }
  for (const v1::OperatorSplit& split : plan.strategy().splits())
    json["split_operators"][split.node()] = split.parts();
  if (plan.strategy().orders_size() > 0) json["orders"] = Orders(plan.strategy(), context);
  return json;
}

}  // namespace

nlohmann::json PlanJson(const v1::PlanResponse& response, const PlanContext& context) {
  nlohmann::json json =
      response.has_best() ? OnePlanJson(response.best(), context) : nlohmann::json::object();
  json["model"] = context.model;
  json["termination"] = TerminationText(response.termination());
  if (response.has_one_device_ns())
    json["one_device_seconds"] = ToSeconds(Nanos(response.one_device_ns()));
  json["lower_bound_seconds"] = ToSeconds(Nanos(response.lower_bound_ns()));
  if (const auto gap = GapRatio(response)) json["gap_ratio"] = *gap;
  json["search_seconds"] = response.search_seconds();
  json["search_states"] = response.states();
  json["candidates"] = response.candidates();
  json["planner_operators"] = response.operators();
  json["warnings"] =
      std::vector<std::string>(response.warnings().begin(), response.warnings().end());
  if (!response.reason().empty()) json["reason"] = response.reason();
  if (response.has_explanation()) json["explanation"] = ExplanationJson(response.explanation());
  if (response.has_sequential()) json["sequential"] = OnePlanJson(response.sequential(), context);
  return json;
}

}  // namespace stagewright::cli
