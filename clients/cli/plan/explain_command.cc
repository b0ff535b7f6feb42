#include "clients/cli/plan/explain_command.h"

#include <iostream>
#include <memory>

#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/files/saved_plan.h"
#include "clients/cli/flags/plan_flags.h"
#include "clients/cli/view/explanation_json.h"
#include "common/config/number_checks.h"
#include "common/wire/strategy_proto.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright::cli {
namespace {

struct ExplainFlags {
  std::string plan;
  ProblemFlags problem;
  bool own_precision = false;  // Given here, whatever the plan was made for.
  double time_limit_seconds = 60;
  bool local = false;
};

absl::StatusOr<v1::Explanation> ExplainHere(const v1::ExplainRequest& request, double seconds) {
  ASSIGN_OR_RETURN(const OwnedPlanRequest owned, FromProto(request.problem()));
  const SearchContext context(SearchContext::Clock::now() +
                              std::chrono::duration_cast<SearchContext::Clock::duration>(
                                  std::chrono::duration<double>(seconds)));
  ASSIGN_OR_RETURN(const Explanation explanation,
                   ExplainStrategy(owned.request, FromProto(request.strategy()), context));
  return ToProto(explanation);
}

absl::StatusOr<v1::Explanation> ExplainThere(const v1::ExplainRequest& request, double seconds,
                                             const Globals& globals) {
  Connection connection(globals);
  v1::ExplainResponse response;
  RETURN_IF_ERROR(connection.Call(absl::Seconds(seconds), [&](grpc::ClientContext* context) {
    return connection.planner().Explain(context, request, &response);
  }));
  return response.explanation();
}

absl::StatusOr<v1::Explanation> ExplanationOf(ExplainFlags flags, const Globals& globals) {
  ASSIGN_OR_RETURN(SavedPlan saved, LoadPlan(flags.plan));
  if (flags.problem.source.path.empty()) {
    if (saved.response.has_explanation()) return saved.response.explanation();
    return absl::FailedPreconditionError(
        absl::StrCat(flags.plan,
                     " holds no explanation: save it with `plan --explain`, or give its graph and "
                     "--cluster here"));
  }
  if (!saved.response.has_best())
    return absl::FailedPreconditionError(absl::StrCat(flags.plan, " holds no plan"));
  const v1::Strategy& strategy = saved.response.best().strategy();
  if (!flags.problem.mini_batch) flags.problem.mini_batch = strategy.mini_batch();
  v1::ExplainRequest request;
  std::vector<std::string> warnings;
  ASSIGN_OR_RETURN(*request.mutable_problem(), MakeProblem(flags.problem, warnings));
  if (!flags.own_precision)
    request.mutable_problem()->set_precision(saved.response.best().provenance().precision());
  for (const std::string& warning : warnings) std::cerr << "warning: " << warning << "\n";
  *request.mutable_strategy() = strategy;
  return flags.local ? ExplainHere(request, flags.time_limit_seconds)
                     : ExplainThere(request, flags.time_limit_seconds, globals);
}

int RunExplain(const ExplainFlags& flags, const Globals& globals) {
  const auto explanation = ExplanationOf(flags, globals);
  if (!explanation.ok()) return Report(explanation.status());
  if (globals.json()) {
    std::cout << ExplanationJson(*explanation).dump(2) << std::endl;
  } else {
    std::cout << ToText(FromProto(*explanation));
  }
  return kSuccess;
}

}  // namespace

void AddExplainCommand(CLI::App& app, Globals& globals) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* explain =
      app.add_subcommand("explain", "what binds a saved plan, what its cuts cost, what would help");
  explain->add_option("plan", flags->plan, "file written by `plan --save`")->required();
  AddProblemFlags(*explain, flags->problem);
  explain->add_option("--time-limit", flags->time_limit_seconds, "for the simulations")
      ->check(Seconds())
      ->capture_default_str();
  explain->add_flag("--local", flags->local, "simulate in this process, without a service");
  AddOutputOption(*explain, globals);
  explain->callback([flags, explain, &globals] {
    flags->own_precision = explain->count("--precision") > 0;
    globals.exit_code = RunExplain(*flags, globals);
  });
}

}  // namespace stagewright::cli
