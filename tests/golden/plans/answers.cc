#include "tests/golden/plans/answers.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "clients/cli/files/plan_file.h"
#include "clients/cli/view/plan_json.h"
#include "clients/cli/view/plan_text.h"
#include "common/wire/graph_proto.h"
#include "planner_service/front_door/planner_table.h"
#include "planner_service/wire/plan_proto.h"
#include "tests/golden/plans/cell.h"

namespace stagewright::golden {
namespace {

// The planner whose answer "manual" reads.
constexpr char kAuthor[] = "graphpipe";

struct Answer {
  std::string cell;
  std::string json;  // Empty where there is no plan.
};

Answer Shown(const PlanRequest& request, PlanResponse response) {
  response.search_seconds = 0;
  response.states = response.candidates = 0;
  const v1::PlanResponse proto = ToProto(response, *request.cluster);
  const bool split = response.best && response.best->split_graphs != nullptr;
  const Graph& graph = split ? response.best->split_graphs->graph : *request.graph;
  const cli::PlanContext context = cli::ContextOf(ToProto(graph), proto.best());
  const std::string json = cli::PlanJson(proto, context).dump(2);
  const std::string shown = absl::StrCat(cli::PlanText(proto, context), json);
  if (!response.best) return {WordCell(shown, TerminationName(response.termination)), ""};
  return {TimedCell(shown, response.best->evaluation.iteration_time), json};
}

// Exhaustive searches of a dozen operators take minutes. The default planner bounds its own.
int64_t MostEffort(const std::string& planner) {
  if (planner == kDefaultPlanner) return SearchContext::kAnyEffort;
  return planner == "exact" ? 5'000 : 2'000'000;
}

Answer Ask(const PlanRequest& request) {
  const SearchContext unlimited;
  SearchContext context(unlimited, MostEffort(request.planner));
  auto response = SolvePlan(request, context);
  if (!response.ok()) {
    return {
        WordCell(response.status().ToString(), absl::StatusCodeToString(response.status().code())),
        ""};
  }
  return Shown(request, *std::move(response));
}

// What ReadPlanFile makes of what `plan -o json` printed.
absl::StatusOr<std::string> ByHand(const std::string& json) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / absl::StrCat("golden-plan-", getpid(), ".json");
  std::ofstream(path) << json;
  auto plan = cli::ReadPlanFile(path);
  std::filesystem::remove(path);
  RETURN_IF_ERROR(plan.status());
  return plan->plan;
}

}  // namespace

std::vector<std::string> PlanColumns() {
  std::vector<std::string> columns;
  for (const RegisteredPlanner& planner : RegisteredPlanners()) columns.push_back(planner.name);
  columns.push_back(kManualPlanner);
  return columns;
}

absl::StatusOr<Cells> AskPlanners(PlanRequest request, const Wanted& wanted) {
  Cells cells;
  for (const RegisteredPlanner& planner : RegisteredPlanners()) {
    request.planner = planner.name;
    if (!wanted(request.planner)) continue;
    // The default planner finds the sequential plan on its way.
    request.compare_sequential = request.planner == kDefaultPlanner;
    const Answer answer = Ask(request);
    cells[request.planner] = answer.cell;
    if (request.planner != kAuthor || answer.json.empty()) continue;
    PlanRequest again = request;
    again.planner = kManualPlanner;
    ASSIGN_OR_RETURN(again.options.manual, ByHand(answer.json));
    cells[kManualPlanner] = Ask(again).cell;
  }
  return cells;
}

}  // namespace stagewright::golden
