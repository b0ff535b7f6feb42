#include "clients/cli/view/plan_text.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/cli/view/plan_figures.h"
#include "clients/cli/view/schedule_text.h"
#include "clients/cli/view/stage_dag.h"
#include "clients/cli/view/stage_names.h"
#include "clients/cli/view/table.h"
#include "common/base/units.h"
#include "planner_service/evaluator/explain.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright::cli {
namespace {

std::string Percent(double ratio) { return absl::StrFormat("%.1f %%", ratio * 100); }

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

void AddSummaryRow(const v1::Plan& plan, Table& table) {
  const v1::Evaluation& evaluation = plan.evaluation();
  table.Add({HasBranches(plan.strategy()) ? "graph (GPP)" : "sequential (SPP)",
             plan.provenance().planner(), absl::StrCat(plan.strategy().stages_size()),
             absl::StrCat(evaluation.depth()), absl::StrCat(DevicesUsed(plan.strategy())),
             MicroBatches(plan.strategy()), FormatDuration(Nanos(evaluation.iteration_ns())),
             absl::StrFormat("%.1f", evaluation.samples_per_second()),
             Percent(evaluation.bubble_ratio()), FormatBytes(PeakMemory(plan))});
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

// What was cut in parallel parts.
std::string SplitsText(const v1::Strategy& strategy, const PlanContext& context) {
  std::vector<std::string> cut;
  for (const v1::OperatorSplit& split : strategy.splits()) {
    const auto node = std::find(context.node_names.begin(), context.node_names.end(), split.node());
    const auto index = static_cast<size_t>(node - context.node_names.begin());
    const bool in_module = node != context.node_names.end() && !context.node_modules[index].empty();
    cut.push_back(absl::StrCat(
        split.node(), in_module ? absl::StrCat(" (", context.node_modules[index], ")") : "", " in ",
        split.parts()));
  }
  if (cut.empty()) return "";
  return absl::StrCat("operators cut in parallel parts: ", absl::StrJoin(cut, ", "), "\n");
}

}  // namespace

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
  absl::StrAppend(&out, OneDeviceText(response), SplitsText(best.strategy(), context));
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
  // The roofline is what everybody expects; a profile is worth a line.
  if (best.provenance().cost_model().rfind("profile ", 0) == 0)
    absl::StrAppend(&out, "costs: ", best.provenance().cost_model(), "\n");
  if (response.has_explanation())
    absl::StrAppend(&out, "\n", ToText(FromProto(response.explanation())));
  for (const std::string& warning : response.warnings())
    absl::StrAppend(&out, "warning: ", warning, "\n");
  return out;
}

}  // namespace stagewright::cli
