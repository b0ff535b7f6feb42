#include "clients/cli/plan/plan_commands.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/files/plan_file.h"
#include "clients/cli/files/saved_plan.h"
#include "clients/cli/files/timelines.h"
#include "clients/cli/flags/plan_flags.h"
#include "clients/cli/plan/measure.h"
#include "clients/cli/view/plan_context.h"
#include "clients/cli/view/plan_json.h"
#include "clients/cli/view/plan_text.h"
#include "common/base/text_file.h"
#include "common/base/units.h"
#include "common/clock/steady_now.h"
#include "common/config/number_checks.h"
#include "common/cost/measured/operator_profile.h"
#include "common/wire/split_graph.h"
#include "common/wire/strategy_proto.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/wire/plan_basis.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright::cli {
namespace {

struct PlanFlags {
  ProblemFlags problem;
  MeasureFlags measure;
  std::string planner;
  std::string plan_file;
  std::shared_ptr<v1::PlanOptions> options = std::make_shared<v1::PlanOptions>();
  double time_limit_seconds = 60;
  bool local = false;
  std::string profile;  // File; with --local.
  bool no_sequential = false;
  bool explain = false;
  std::string save;
  std::string trace;
};

// A finished answer with what its views need; what `--save` writes.
struct Answer {
  v1::PlanResponse response;
  PlanContext context;
  std::optional<Measurement> measured;  // With --measure-steps.
};

absl::StatusOr<v1::PlanRequest> MakeRequest(const PlanFlags& flags,
                                            std::vector<std::string>& warnings) {
  v1::PlanRequest request;
  ASSIGN_OR_RETURN(*request.mutable_problem(), MakeProblem(flags.problem, warnings));
  request.set_planner(flags.planner);
  *request.mutable_options() = *flags.options;
  if (!flags.plan_file.empty()) {
    RETURN_IF_ERROR(SetManualPlan(flags.plan_file, *request.mutable_options()));
    if (flags.planner.empty()) request.set_planner("manual");
  }
  request.set_compare_sequential(!flags.no_sequential);
  request.set_explain(flags.explain);
  request.set_timeline(!flags.trace.empty() || !flags.save.empty());
  return request;
}

SearchContext::Clock::time_point After(double seconds) {
  return SearchContext::Clock::now() + std::chrono::duration_cast<SearchContext::Clock::duration>(
                                           std::chrono::duration<double>(seconds));
}

absl::StatusOr<v1::PlanResponse> SolveHere(const v1::PlanRequest& request,
                                           const std::string& profile_file,
                                           double time_limit_seconds) {
  auto owned = FromProto(request);
  RETURN_IF_ERROR(owned.status());
  OperatorProfile profile;
  if (!profile_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadTextFile(profile_file));
    ASSIGN_OR_RETURN(profile, ParseOperatorProfile(text, profile_file));
    owned->request.profile = &profile;
  }
  SearchContext context(After(time_limit_seconds));
  ASSIGN_OR_RETURN(PlanResponse response, SolvePlan(owned->request, context));
  v1::PlanResponse answer = ToProto(response, *owned->cluster);
  if (!answer.has_best()) return answer;
  *answer.mutable_basis() = BasisOf(request.problem(), DevicesOf(*owned->cluster));
  SetLinks(*owned->cluster, *answer.mutable_basis());
  SetProfiles(profile, *answer.mutable_basis());
  return answer;
}

// Here, too, but each strategy is tried on the workers of the service.
absl::StatusOr<v1::PlanResponse> SolveByMeasuring(const v1::PlanRequest& request,
                                                  const PlanFlags& flags, const Globals& globals,
                                                  std::optional<Measurement>& measured) {
  auto owned = FromProto(request);
  RETURN_IF_ERROR(owned.status());
  SearchContext context(After(flags.time_limit_seconds));
  StepMeasurer measurer(request.problem(), owned->cluster->size(), flags.measure, globals,
                        SteadyNow() + absl::Seconds(flags.time_limit_seconds), context);
  RETURN_IF_ERROR(measurer.CheckDevices());
  context.measure = [&measurer](const Problem& problem) { return measurer.RewardOf(problem); };
  ASSIGN_OR_RETURN(PlanResponse response, SolvePlan(owned->request, context));
  v1::PlanResponse answer = ToProto(response, *owned->cluster);
  if (answer.has_best()) measured = measurer.MeasurementOf(answer.best().strategy());
  if (measurer.status().ok()) return answer;
  if (!answer.has_best()) return measurer.status();
  answer.add_warnings(
      absl::StrCat("measuring ended early: ", std::string(measurer.status().message())));
  return answer;
}

absl::StatusOr<v1::PlanResponse> SolveThere(const v1::PlanRequest& request,
                                            double time_limit_seconds, const Globals& globals) {
  Connection connection(globals);
  v1::PlanResponse response;
  RETURN_IF_ERROR(
      connection.Call(absl::Seconds(time_limit_seconds), [&](grpc::ClientContext* context) {
        return connection.planner().Plan(context, request, &response);
      }));
  return response;
}

int Show(const Answer& answer, const Globals& globals) {
  if (globals.json()) {
    nlohmann::json json = PlanJson(answer.response, answer.context);
    if (answer.measured.has_value()) {
      json["measured"] = {{"step_seconds", answer.measured->step_seconds},
                          {"jobs", answer.measured->jobs},
                          {"failed", answer.measured->failed}};
    }
    std::cout << json.dump(2) << std::endl;
  } else {
    std::cout << PlanText(answer.response, answer.context);
    if (answer.measured.has_value()) {
      std::cout << absl::StrFormat(
          "measured on workers: %s a step, the fastest of %d jobs (%d failed)\n",
          FormatDuration(static_cast<Nanos>(answer.measured->step_seconds * 1e9)),
          answer.measured->jobs, answer.measured->failed);
    }
  }
  return answer.response.has_best() ? kSuccess : kNoPlan;
}

// Throws CLI::ParseError for flags that do not go together.
void CheckMeasureFlags(const PlanFlags& flags) {
  if (flags.measure.steps == 0) return;
  std::vector<std::string> learners;
  for (const PlannerInfo& planner : ListPlanners()) {
    if (planner.learns_by_trial) learners.push_back(planner.name);
  }
  if (std::find(learners.begin(), learners.end(), flags.planner) == learners.end()) {
    throw CLI::ValidationError("--measure-steps",
                               absl::StrCat("only --planner ", absl::StrJoin(learners, " or "),
                                            " learns from real steps"));
  }
  if (flags.options->splits_size() > 0) {
    throw CLI::ValidationError("--measure-steps",
                               "strategies are tried on the graph as it is: --split-operators can "
                               "name none");
  }
  if (flags.measure.weights.empty()) throw CLI::RequiredError("--weights");
  if (flags.measure.data.empty()) throw CLI::RequiredError("--data");
}

int RunPlan(const PlanFlags& flags, const Globals& globals) {
  CheckMeasureFlags(flags);
  std::vector<std::string> warnings;
  auto request = MakeRequest(flags, warnings);
  if (!request.ok()) return Report(request.status());
  std::optional<Measurement> measured;
  auto response = flags.measure.steps > 0 ? SolveByMeasuring(*request, flags, globals, measured)
                  : flags.local ? SolveHere(*request, flags.profile, flags.time_limit_seconds)
                                : SolveThere(*request, flags.time_limit_seconds, globals);
  if (!response.ok()) return Report(response.status());
  for (const std::string& warning : warnings) response->add_warnings(warning);

  const auto graph =
      SplitGraph(request->problem().graph(), FromProto(response->best().strategy()).splits);
  if (!graph.ok()) return Report(graph.status());
  const Answer answer{*response, ContextOf(*graph, response->best()), measured};
  if (!flags.save.empty()) {
    if (absl::Status status = SavePlan(*response, *graph, flags.save); !status.ok()) {
      return Report(status);
    }
  }
  if (!flags.trace.empty() && response->has_best()) {
    if (absl::Status status = SaveTimelines(*response, answer.context.device_names, flags.trace);
        !status.ok()) {
      return Report(status);
    }
  }
  return Show(answer, globals);
}

int RunPlanShow(const std::string& what, const std::string& trace, const Globals& globals) {
  Answer answer;
  if (absl::StartsWith(what, "jobs/")) {
    Connection connection(globals);
    v1::GetJobRequest request;
    request.set_name(what);
    v1::GetJobResponse response;
    absl::Status status = connection.Call(absl::Seconds(30), [&](grpc::ClientContext* context) {
      return connection.jobs().GetJob(context, request, &response);
    });
    if (!status.ok()) return Report(status);
    if (!response.job().has_plan())
      return Report(absl::FailedPreconditionError(what + " has no plan yet"));
    *answer.response.mutable_best() = response.job().plan();
    answer.response.set_termination(v1::TERMINATION_FEASIBLE);
    if (response.job().has_sequential_plan())
      *answer.response.mutable_sequential() = response.job().sequential_plan();
    answer.context = ContextOf(response.job().spec().graph(), response.job().plan());
  } else {
    auto saved = LoadPlan(what);
    if (!saved.ok()) return Report(saved.status());
    answer.response = saved->response;
    answer.context = ContextOf(saved->graph, saved->response.best());
  }
  if (!trace.empty()) {
    if (absl::Status status = SaveTimelines(answer.response, answer.context.device_names, trace);
        !status.ok()) {
      return Report(status);
    }
  }
  return Show(answer, globals);
}

}  // namespace

void AddPlanCommands(CLI::App& app, Globals& globals) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* plan = app.add_subcommand("plan", "find a strategy for a graph on a cluster");
  AddProblemFlags(*plan, flags->problem);
  plan->add_option("--planner", flags->planner, "which planner (default: the service's)");
  plan->add_option("--plan-file", flags->plan_file,
                   "a plan to judge: by hand (docs/planners/manual.md), from -o json or --save");
  AddSearchFlags(*plan, flags->options);
  plan->add_option_function<uint64_t>(
      "--seed", [flags](uint64_t n) { flags->options->set_seed(n); },
      "of planners that draw random numbers (default 1)");
  AddMeasureFlags(*plan, flags->measure);
  plan->add_flag("--no-sequential", flags->no_sequential,
                 "do not look for the best sequential plan to compare with");
  plan->add_flag("--explain", flags->explain, "say what binds, and what would help");
  plan->add_option("--time-limit", flags->time_limit_seconds, "for the search")
      ->check(Seconds())
      ->capture_default_str();
  CLI::Option* local =
      plan->add_flag("--local", flags->local, "plan in this process, without a service");
  plan->add_option("--profile", flags->profile,
                   "costs of operators, as `profiles export` writes them, by the names of the "
                   "cluster's device kinds")
      ->needs(local);
  plan->add_option("--save", flags->save, "write the plan to a file that `plan show` reads");
  plan->add_option("--trace", flags->trace, "write the timeline as a Chrome trace");
  AddOutputOption(*plan, globals);

  auto what = std::make_shared<std::string>();
  CLI::App* show = plan->add_subcommand("show", "show a saved plan, or a job's");
  show->add_option("plan", *what, "file written by --save, or a job (jobs/7)")->required();
  show->add_option("--trace", flags->trace, "write the timeline as a Chrome trace");
  AddOutputOption(*show, globals);
  show->callback(
      [what, flags, &globals] { globals.exit_code = RunPlanShow(*what, flags->trace, globals); });

  plan->callback([plan, flags, &globals] {
    if (!plan->get_subcommands().empty()) return;
    globals.exit_code = RunPlan(*flags, globals);
  });
}

}  // namespace stagewright::cli
