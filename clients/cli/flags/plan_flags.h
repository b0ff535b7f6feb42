// What `plan`, `explain` and `submit` ask: the question of the command line as a request.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clients/cli/flags/graph_source.h"
#include "common/base/status.h"
#include "common/training/optimizer_spec.h"
#include "common/training/precision.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

struct ProblemFlags {
  GraphSource source;
  std::string cluster;
  Optimizer optimizer = Optimizer::kAdam;
  Precision precision = Precision::kGraph;
  std::optional<int64_t> mini_batch;
};

// Graph, --cluster, --mini-batch, --optimizer and --precision. `flags` outlives the app.
void AddProblemFlags(CLI::App& command, ProblemFlags& flags);

// The flags that bound and steer the search, into `options`, which the command keeps.
void AddSearchFlags(CLI::App& command, std::shared_ptr<v1::PlanOptions> options);

// The problem and, into `warnings`, what the import has to say. A piper profile brings its own
// cluster (uniform, without latency) and mini-batch where the command line gives none. Throws
// CLI::RequiredError for what is missing.
absl::StatusOr<v1::PlanningProblem> MakeProblem(const ProblemFlags& flags,
                                                std::vector<std::string>& warnings);

}  // namespace stagewright::cli
