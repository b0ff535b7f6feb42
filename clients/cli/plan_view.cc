#include "clients/cli/plan_view.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clients/cli/table.h"
#include "common/base/units.h"
#include "common/strategy/orders.h"
#include "common/strategy/strategy.h"
#include "common/wire/strategy_proto.h"
#include "planner_service/evaluator/explain.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright::cli {
namespace {

std::string Percent(double ratio) { return absl::StrFormat("%.1f %%", ratio * 100); }

std::string Device(const PlanContext& context, int32_t index) {
  const auto known = static_cast<int32_t>(context.device_names.size());
  return index < known ? context.device_names[index] : absl::StrCat("device ", index);
}

std::vector<std::string> Devices(const v1::Stage& stage, const PlanContext& context) {
  std::vector<std::string> names;
  for (int32_t device : stage.devices()) names.push_back(Device(context, device));
  return names;
}

// Names in a row that differ in one number only, counted up, are written once: "gpu[0-3]". The
// number is the one that ends before `suffix_of` the name.
std::vector<std::string> JoinRuns(const std::vector<std::string>& names,
                                  size_t (*suffix_of)(const std::string&)) {
  struct Parts {
    std::string stem, suffix;
    int64_t number = -1;
  };
  const auto split = [&](const std::string& name) {
    const size_t end = suffix_of(name);
    Parts parts;
    size_t digits = end;
    while (digits > 0 && absl::ascii_isdigit(name[digits - 1])) --digits;
    if (!absl::SimpleAtoi(name.substr(digits, end - digits), &parts.number)) parts.number = -1;
    parts.stem = name.substr(0, digits);
    parts.suffix = name.substr(end);
    return parts;
  };
  std::vector<std::string> joined;
  for (size_t begin = 0, end = 0; begin < names.size(); begin = end) {
    const Parts first = split(names[begin]);
    int64_t last = first.number;
    for (end = begin + 1; end < names.size() && first.number >= 0; ++end, ++last) {
      const Parts next = split(names[end]);
      if (next.stem != first.stem || next.suffix != first.suffix || next.number != last + 1) break;
    }
    joined.push_back(last == first.number ? names[begin]
                                          : absl::StrCat(first.stem, "[", first.number, "-", last,
                                                         "]", first.suffix));
  }
  return joined;
}

// The devices of a stage for people, in the cluster's order: "node0/gpu[2-3] node[1-3]/gpu[0-3]".
std::string DevicesText(const v1::Stage& stage, const PlanContext& context) {
  std::set<int32_t> sorted(stage.devices().begin(), stage.devices().end());
  std::vector<std::string> names;
  for (int32_t device : sorted) names.push_back(Device(context, device));
  names = JoinRuns(
      names, +[](const std::string& name) { return name.size(); });
  names = JoinRuns(
      names, +[](const std::string& name) { return std::min(name.find('/'), name.size()); });
  return absl::StrJoin(names, " ");
}

// The modules a stage holds, each once, in order.
std::vector<std::string> Modules(const v1::Stage& stage, const PlanContext& context) {
  std::vector<std::string> modules;
  std::set<std::string> seen;
  for (int32_t node : stage.nodes()) {
    if (node >= static_cast<int32_t>(context.node_modules.size())) continue;
    const std::string& module = context.node_modules[node];
    if (!module.empty() && seen.insert(module).second) modules.push_back(module);
  }
  return modules;
}

// The position of each node among those that have a stage, in the graph's order; -1 of others.
std::vector<int32_t> NodeRanks(const v1::Strategy& strategy, const PlanContext& context) {
  std::vector<int32_t> ranks(context.node_modules.size(), -1);
  for (const v1::Stage& stage : strategy.stages()) {
    for (int32_t node : stage.nodes()) {
      if (node < static_cast<int32_t>(ranks.size())) ranks[node] = 0;
    }
  }
  int32_t next = 0;
  for (int32_t& rank : ranks) {
    if (rank == 0) rank = next++;
  }
  return ranks;
}

// The modules of the stage's nodes, each once, split where another stage has the next node.
std::vector<std::vector<std::string>> ModuleRuns(const v1::Stage& stage, const PlanContext& context,
                                                 const std::vector<int32_t>& ranks) {
  std::vector<int32_t> nodes;
  for (int32_t node : stage.nodes()) {
    if (node < static_cast<int32_t>(ranks.size())) nodes.push_back(node);
  }
  std::sort(nodes.begin(), nodes.end());
  std::vector<std::vector<std::string>> runs;
  std::set<std::string> seen;
  bool open = false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    open = open && ranks[nodes[i]] == ranks[nodes[i - 1]] + 1;
    const std::string& module = context.node_modules[nodes[i]];
    if (module.empty() || !seen.insert(module).second) continue;
    if (!open) runs.emplace_back();
    open = true;
    runs.back().push_back(module);
  }
  return runs;
}

// "a .. e" where the stage holds all between the two; what is beyond a few such runs is counted:
// "a .. e, g (+4)".
std::string ModuleText(const v1::Stage& stage, const PlanContext& context,
                       const std::vector<int32_t>& ranks) {
  constexpr size_t kWidth = 48;
  std::vector<std::string> parts;
  std::vector<size_t> held;  // Modules in each part.
  for (const std::vector<std::string>& run : ModuleRuns(stage, context, ranks)) {
    if (run.size() > 2) {
      parts.push_back(absl::StrCat(run.front(), " .. ", run.back()));
      held.push_back(run.size());
    } else {
      parts.insert(parts.end(), run.begin(), run.end());
      held.resize(parts.size(), 1);
    }
  }
  if (parts.empty()) return absl::StrCat(stage.nodes_size(), " nodes");
  std::string text = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    if (i == 3 || text.size() + parts[i].size() > kWidth) {
      const size_t left =
          std::accumulate(held.begin() + static_cast<ptrdiff_t>(i), held.end(), size_t{0});
      return absl::StrCat(text, " (+", left, ")");
    }
    absl::StrAppend(&text, ", ", parts[i]);
  }
  return text;
}

std::vector<std::vector<int32_t>> Successors(const v1::Strategy& strategy) {
  std::vector<std::vector<int32_t>> successors(strategy.stages_size());
  for (const v1::StageEdge& edge : strategy.edges()) successors[edge.from()].push_back(edge.to());
  return successors;
}

// The depth at which each stage starts: 1 + the longest path to it.
std::vector<int32_t> Levels(const v1::Strategy& strategy) {
  std::vector<int32_t> level(strategy.stages_size(), 1);
  for (const v1::StageEdge& edge :
       strategy.edges()) {  // Stages are in topological order and edges are sorted.
    level[edge.to()] = std::max(level[edge.to()], level[edge.from()] + 1);
  }
  return level;
}

// "1 ─┬─ 2 ─┬─ 4" needs a layout; levels say the same: one line per level, its stages side by side.
std::string DagText(const v1::Strategy& strategy) {
  const std::vector<int32_t> levels = Levels(strategy);
  const auto successors = Successors(strategy);
  std::string out;
  const int32_t depth = levels.empty() ? 0 : *std::max_element(levels.begin(), levels.end());
  for (int32_t level = 1; level <= depth; ++level) {
    std::vector<std::string> cells;
    for (int32_t s = 0; s < strategy.stages_size(); ++s) {
      if (levels[s] != level) continue;
      std::string cell = absl::StrCat("[", s, "]");
      if (!successors[s].empty()) absl::StrAppend(&cell, " -> ", absl::StrJoin(successors[s], ","));
      cells.push_back(std::move(cell));
    }
    absl::StrAppend(&out, "  ",
                    level == 1       ? "in  "
                    : level == depth ? "out "
                                     : "    ",
                    absl::StrJoin(cells, "   "), "\n");
  }
  return out;
}

bool IsSplit(const v1::Strategy& strategy, int32_t stage) {
  for (const v1::DeviceOrder& order : strategy.orders()) {
    for (const v1::ComputeStep& step : order.steps()) {
      if (step.stage() == stage && step.pass() == v1::PASS_BACKWARD_INPUT) return true;
    }
  }
  return false;
}

std::string StageTable(const v1::Plan& plan, const PlanContext& context) {
  const std::vector<int32_t> ranks = NodeRanks(plan.strategy(), context);
  Table table({"stage", "modules", "devices", "schedule", ">micro-batch", ">in flight",
               ">per sample", ">memory"});
  for (int32_t s = 0; s < plan.strategy().stages_size(); ++s) {
    const v1::Stage& stage = plan.strategy().stages(s);
    const v1::StageReport& report = plan.evaluation().stages(s);
    table.Add({absl::StrCat("[", s, "]"), ModuleText(stage, context, ranks),
               DevicesText(stage, context), ScheduleText(plan.strategy(), s),
               absl::StrCat(stage.micro_batch()), absl::StrCat(report.in_flight()),
               FormatDuration(static_cast<Nanos>(report.seconds_per_sample() * 1e9)),
               FormatBytes(Bytes(report.peak_memory_bytes()))});
  }
  return table.ToString();
}

std::string MicroBatches(const v1::Strategy& strategy) {
  std::set<int64_t> sizes;
  for (const v1::Stage& stage : strategy.stages()) sizes.insert(stage.micro_batch());
  return absl::StrJoin(sizes, "/");
}

int32_t DevicesUsed(const v1::Strategy& strategy) {
  std::set<int32_t> devices;
  for (const v1::Stage& stage : strategy.stages())
    devices.insert(stage.devices().begin(), stage.devices().end());
  return static_cast<int32_t>(devices.size());
}

Bytes PeakMemory(const v1::Evaluation& evaluation) {
  Bytes peak = 0;
  for (const v1::DeviceReport& device : evaluation.devices())
    peak = std::max(peak, Bytes(device.peak_memory_bytes()));
  return peak;
}

Bytes PeakMemory(const v1::Plan& plan) { return PeakMemory(plan.evaluation()); }

// Stages beside each other, whatever the planner calls it.
bool HasBranches(const v1::Strategy& strategy) {
  const std::vector<int32_t> levels = Levels(strategy);
  const auto deepest = std::max_element(levels.begin(), levels.end());
  return deepest != levels.end() && *deepest < strategy.stages_size();
}

void AddSummaryRow(const v1::Plan& plan, Table& table) {
  const v1::Evaluation& evaluation = plan.evaluation();
  table.Add({HasBranches(plan.strategy()) ? "graph (GPP)" : "sequential (SPP)",
             plan.provenance().planner(), absl::StrCat(plan.strategy().stages_size()),
             absl::StrCat(evaluation.depth()), absl::StrCat(DevicesUsed(plan.strategy())),
             MicroBatches(plan.strategy()), FormatDuration(Nanos(evaluation.iteration_ns())),
             absl::StrFormat("%.1f", evaluation.samples_per_second()),
             Percent(evaluation.bubble_ratio()), FormatBytes(PeakMemory(plan))});
}

std::vector<std::string> Names(const v1::Stage& stage, const PlanContext& context) {
  std::vector<std::string> names;
  for (int32_t node : stage.nodes()) {
    if (node < static_cast<int32_t>(context.node_names.size()))
      names.push_back(context.node_names[node]);
  }
  return names;
}

// By how much the plan takes longer than the bound; nothing without a bound.
std::optional<double> GapRatio(const v1::PlanResponse& response) {
  if (!response.has_best() || response.lower_bound_ns() <= 0) return std::nullopt;
  return static_cast<double>(response.best().evaluation().iteration_ns()) /
             static_cast<double>(response.lower_bound_ns()) -
         1;
}

nlohmann::json StageJson(const v1::Plan& plan, int32_t s, const PlanContext& context) {
  const v1::Stage& stage = plan.strategy().stages(s);
  const v1::StageReport& report = plan.evaluation().stages(s);
  const std::vector<std::vector<int32_t>> successors = Successors(plan.strategy());
  return {{"stage", s},
          {"operators", std::vector<int32_t>(stage.nodes().begin(), stage.nodes().end())},
          {"nodes", Names(stage, context)},
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

// As a plan by hand has them.
std::vector<std::string> Orders(const v1::Strategy& strategy) {
  return absl::StrSplit(OrdersToText(FromProto(strategy).orders), '\n', absl::SkipEmpty());
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
      {"fingerprint", absl::StrFormat("%016x", plan.fingerprint())},
      {"stages", std::move(stages)},
      {"devices", std::move(devices)}};
  for (const v1::LengthPlan& length : plan.lengths()) {
    json["lengths"].push_back(
        {{"samples", length.samples()},
         {"iteration_seconds", ToSeconds(Nanos(length.evaluation().iteration_ns()))},
         {"samples_per_second", length.evaluation().samples_per_second()},
         {"peak_memory_bytes", PeakMemory(length.evaluation()).count()}});
  }
  if (plan.strategy().orders_size() > 0) json["orders"] = Orders(plan.strategy());
  return json;
}

// Steps of samples of other shapes; empty if all have one.
std::string LengthsText(const v1::Plan& plan) {
  if (plan.lengths_size() == 0) return "";
  Table table({"samples of", ">step time", ">samples/s", ">peak memory"});
  for (const v1::LengthPlan& length : plan.lengths()) {
    const v1::Evaluation& evaluation = length.evaluation();
    table.Add({length.samples(), FormatDuration(Nanos(evaluation.iteration_ns())),
               absl::StrFormat("%.1f", evaluation.samples_per_second()),
               FormatBytes(PeakMemory(evaluation))});
  }
  return absl::StrCat("the figures above are of the largest samples; of the others\n",
                      table.ToString(), "\n");
}

// What several devices gain over one; empty if the plan has but one.
std::string OneDeviceText(const v1::PlanResponse& response) {
  const v1::Plan& best = response.best();
  if (!response.has_one_device_ns() || best.evaluation().devices_size() < 2) return "";
  const Nanos alone(response.one_device_ns());
  const Nanos here(best.evaluation().iteration_ns());
  const std::string times = absl::StrCat("one device alone takes ", FormatDuration(alone),
                                         " a step, this plan ", FormatDuration(here));
  if (here >= alone) return absl::StrCat(times, ": it does not pay\n");
  return absl::StrFormat("%s: %.2fx\n", times,
                         static_cast<double>(alone) / static_cast<double>(here));
}

}  // namespace

PlanContext ContextOf(const v1::Graph& graph, const v1::Plan& plan) {
  PlanContext context{graph.name(), {}, {}, {}};
  for (const v1::Node& node : graph.nodes()) {
    context.node_names.push_back(node.name());
    context.node_modules.push_back(node.module());
  }
  for (const v1::DeviceReport& device : plan.evaluation().devices()) {
    if (device.device() >= static_cast<int32_t>(context.device_names.size())) {
      context.device_names.resize(device.device() + 1);
    }
    context.device_names[device.device()] = device.name();
  }
  return context;
}

std::string ScheduleText(const v1::Strategy& strategy, int32_t stage_index) {
  const v1::Stage& stage = strategy.stages(stage_index);
  if (strategy.asynchronous())
    return strategy.vertical_sync() ? "async 1F1B, vertical sync" : "async 1F1B";
  std::vector<std::string> parts;
  int32_t loops = 0;
  for (const v1::Stage& other : strategy.stages()) {
    loops += std::find(other.devices().begin(), other.devices().end(),
                       stage.devices_size() > 0 ? stage.devices(0) : -1) != other.devices().end();
  }
  if (loops > 1) parts.push_back(absl::StrCat("looped x", loops));
  if (IsSplit(strategy, stage_index)) parts.push_back("split backward");
  if (strategy.orders_size() > 0) {
    if (parts.empty()) parts.push_back("ordered");
  } else if (stage.in_flight() >= strategy.mini_batch() &&
             strategy.mini_batch() > stage.micro_batch() * std::max(1, stage.k())) {
    parts.push_back("GPipe");
  } else {
    const int32_t k = std::max(1, stage.k());
    parts.push_back(absl::StrCat(k, "F", k, "B"));
  }
  if (stage.recompute()) parts.push_back("recompute");
  return absl::StrJoin(parts, ", ");
}

nlohmann::json ExplanationJson(const v1::Explanation& proto) {
  const Explanation explanation = FromProto(proto);
  const auto what_if = [](const WhatIf& what) {
    nlohmann::json json = {{"change", what.change}};
    if (what.step_time) {
      json["iteration_seconds"] = ToSeconds(*what.step_time);
    } else {
      json["reason"] = what.reason;
    }
    return json;
  };
  nlohmann::json cuts = nlohmann::json::array();
  for (const CutReport& cut : explanation.cuts) {
    cuts.push_back({{"from", cut.from.value()},
                    {"to", cut.to.value()},
                    {"smaller", what_if(cut.smaller)},
                    {"larger", what_if(cut.larger)}});
  }
  nlohmann::json levers = nlohmann::json::array();
  for (const WhatIf& lever : explanation.levers) {
    levers.push_back(what_if(lever));
    if (lever.step_time && *lever.step_time > 0) {
      levers.back()["speedup"] =
          static_cast<double>(explanation.step_time) / static_cast<double>(*lever.step_time);
    }
  }
  return {{"iteration_seconds", ToSeconds(explanation.step_time)},
          {"compute_seconds", ToSeconds(explanation.compute)},
          {"links_seconds", ToSeconds(explanation.links)},
          {"memory_seconds", ToSeconds(explanation.memory)},
          {"bubble_seconds", ToSeconds(explanation.bubble)},
          {"binds", BindingName(explanation.binding)},
          {"bottleneck_stage", explanation.bottleneck.value()},
          {"bottleneck_device", explanation.bottleneck_device},
          {"cuts", std::move(cuts)},
          {"cuts_left_out", explanation.cuts_left_out},
          {"levers", std::move(levers)}};
}

std::string TerminationText(v1::Termination termination) {
  return absl::AsciiStrToLower(
      v1::Termination_Name(termination).substr(std::string("TERMINATION_").size()));
}

std::string PlanText(const v1::PlanResponse& response, const PlanContext& context) {
  std::string out;
  if (!response.has_best()) {
    return absl::StrCat("no plan (", TerminationText(response.termination()),
                        "): ", response.reason(), "\n");
  }
  const v1::Plan& best = response.best();
  const bool graph = HasBranches(best.strategy());
  const bool same =
      response.has_sequential() && response.sequential().fingerprint() == best.fingerprint();
  const int32_t stages = best.strategy().stages_size();
  absl::StrAppend(&out, context.model, ": ", stages, stages == 1 ? " stage" : " stages", ", depth ",
                  best.evaluation().depth());
  if (graph && response.has_sequential()) {
    absl::StrAppend(&out, " (sequential: depth ", response.sequential().evaluation().depth(), ")");
  }
  absl::StrAppend(&out, "\n\n", DagText(best.strategy()), "\n", StageTable(best, context), "\n");

  Table summary({"plan", "planner", ">stages", ">depth", ">devices", ">micro-batch", ">step time",
                 ">samples/s", ">bubble", ">peak memory"});
  AddSummaryRow(best, summary);
  if (response.has_sequential() && !same) AddSummaryRow(response.sequential(), summary);
  absl::StrAppend(&out, summary.ToString(), "\n", LengthsText(best));
  if (graph && response.has_sequential() && best.evaluation().iteration_ns() > 0) {
    const double gain = static_cast<double>(response.sequential().evaluation().iteration_ns()) /
                        static_cast<double>(best.evaluation().iteration_ns());
    absl::StrAppend(&out, absl::StrFormat("graph over sequential: %.2fx\n", gain));
  }
  absl::StrAppend(&out, OneDeviceText(response));
  if (const auto gap = GapRatio(response)) {
    absl::StrAppend(&out, "no plan on these devices can take less than ",
                    FormatDuration(Nanos(response.lower_bound_ns())), "; this one takes ",
                    Percent(*gap), " more\n");
  }
  if (response.search_seconds() > 0) {
    absl::StrAppend(&out, absl::StrFormat("searched for %.3f s by %s (%s)\n",
                                          response.search_seconds(), best.provenance().planner(),
                                          TerminationText(response.termination())));
  }
  if (response.has_explanation())
    absl::StrAppend(&out, "\n", ToText(FromProto(response.explanation())));
  for (const std::string& warning : response.warnings())
    absl::StrAppend(&out, "warning: ", warning, "\n");
  return out;
}

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
