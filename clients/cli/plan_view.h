// Plans for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stagewright/v1/graph.pb.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

// What the views need beside the answer.
struct PlanContext {
  std::string model;  // Name of the graph.
  std::vector<std::string> node_names;
  // Module path per node; empty for nodes outside all modules.
  std::vector<std::string> node_modules;
  std::vector<std::string> device_names;  // By device index.
};

PlanContext ContextOf(const v1::Graph& graph, const v1::Plan& plan);

// The stage DAG with one line per stage, then devices, micro-batches, memory, and the plan beside
// the sequential one.
std::string PlanText(const v1::PlanResponse& response, const PlanContext& context);

// Stable keys, seconds and bytes: iteration_seconds, lower_bound_seconds, gap_ratio,
// search_seconds, termination, depth, micro_batch_size, stages[] and more; `sequential` holds the
// same for the sequential plan.
nlohmann::json PlanJson(const v1::PlanResponse& response, const PlanContext& context);

// "1F1B", "4F4B", "GPipe", "looped x2", "split backward", "async 1F1B" or several of them.
std::string ScheduleText(const v1::Strategy& strategy, int32_t stage);

// What explains a plan, in seconds: binding, parts of the step, cuts[], levers[].
nlohmann::json ExplanationJson(const v1::Explanation& explanation);

// "feasible"
std::string TerminationText(v1::Termination termination);

}  // namespace stagewright::cli
