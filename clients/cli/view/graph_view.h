// Graphs for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/graph/series_parallel.h"

namespace stagewright::cli {

// Inputs, structure, and a line per operator. `tree` decomposes the operators' DAG.
std::string GraphText(const Graph& graph, const OperatorGraph& operators, const SpTree& tree);

// name, nodes, parameters, depth, operators[] with their successors and more.
nlohmann::json GraphJson(const Graph& graph, const OperatorGraph& operators, const SpTree& tree);

}  // namespace stagewright::cli
