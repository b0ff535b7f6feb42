// The names that views of a plan print beside its numbers.
#pragma once

#include <string>
#include <vector>

#include "stagewright/v1/graph.pb.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

struct PlanContext {
  std::string model;  // Name of the graph.
  std::vector<std::string> node_names;
  // Module path per node; empty for nodes outside all modules.
  std::vector<std::string> node_modules;
  std::vector<std::string> device_names;  // By device index.
};

PlanContext ContextOf(const v1::Graph& graph, const v1::Plan& plan);

}  // namespace stagewright::cli
