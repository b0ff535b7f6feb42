// A finished plan: strategy, program and where they came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/units.h"
#include "common/program/program.h"
#include "common/strategy/strategy.h"
#include "common/training/precision.h"

namespace stagewright {

struct Provenance {
  std::string planner;     // "graphpipe"
  std::string version;     // The version of Stagewright.
  std::string cost_model;  // CostModel::Description()
  std::string options;     // Canonical text of the planner's options.
  std::string cluster;     // Its name.
  uint64_t graph_fingerprint = 0;
  Precision precision = Precision::kGraph;  // In which passes compute.
};

struct Plan {
  Strategy strategy;
  Program program;
  Provenance provenance;
  // Over the text of the program and the graph's fingerprint: equal plans have equal fingerprints.
  uint64_t fingerprint = 0;
};

// A stable hash of a graph's contents (nodes, arguments, shapes, parameters); independent of
// platform and process.
uint64_t Fingerprint(const Graph& graph);
uint64_t Fingerprint(const Program& program, uint64_t graph_fingerprint);

}  // namespace stagewright
