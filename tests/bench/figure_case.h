// A problem of GraphPipe's evaluation and what planners answer to it, for the programs that write
// docs/results.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/topology/cluster.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planner/planner.h"

namespace stagewright::bench {

// When the gradients of a stage are summed over its replicas.
enum class Sums {
  kOverlapped,     // In buckets beside the rest of the backward pass.
  kAfterBackward,  // In one sum after the last backward pass of the stage, as in FlexFlow.
};

struct Run {
  Strategy strategy;
  Evaluation evaluation;
  double search_seconds = 0;

  double ms() const { return ToSeconds(evaluation.iteration_time) * 1e3; }
  // "4", or "2 to 8" where stages differ.
  std::string MicroBatch() const;
};

// A model on a cluster, coarsened as the front door does.
class FigureCase {
 public:
  FigureCase(Graph graph, Cluster cluster, int64_t mini_batch, Sums sums);
  FigureCase(const FigureCase&) = delete;

  // None where nothing is found or fits. REQUIRES: a planner of planner_table.h. The evaluation has
  // a timeline.
  std::optional<Run> Solve(const std::string& planner, const PlanOptions& options = {}) const;
  const Problem& problem() const { return problem_; }

 private:
  Graph graph_;
  Cluster cluster_;
  std::unique_ptr<CostModel> costs_;
  OperatorGraph operators_;
  Problem problem_;
};

// The graph `name`.swg of a folder; ends the program where it cannot be read.
Graph ReadExample(const std::string& folder, const std::string& name);

// Nodes of four devices; 0: the preset's memory.
Cluster Summit(int32_t devices, Bytes memory = 0);

}  // namespace stagewright::bench
