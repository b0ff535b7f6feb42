// Where a command's graph comes from: a graph file, or a published profile with --from.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "planner_service/importers/profile.h"
#include "stagewright/v1/graph.pb.h"

namespace stagewright::cli {

struct GraphSource {
  std::string path;
  std::string from;  // Empty: a graph file.
  ImportOptions import;
};

// The positional argument and --from, --profile-batch, --time-unit.
void AddGraphSource(CLI::App& command, GraphSource& source);

struct SourceGraph {
  v1::Graph graph;
  std::optional<PiperSettings> piper;
  std::vector<std::string> warnings;
};

// What a client sends: a graph file is not checked beyond its frame.
absl::StatusOr<SourceGraph> LoadSource(const GraphSource& source);

// The graph itself, checked.
absl::StatusOr<Graph> LoadGraph(const GraphSource& source, std::vector<std::string>& warnings);

}  // namespace stagewright::cli
