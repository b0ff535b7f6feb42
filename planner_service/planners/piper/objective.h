// What Piper minimises, as its published code computes it. The paper's formulas differ, as
// docs/planners/piper.md lists.
//
// A partition is a list of stages, each a convex set of operators on d * t devices: d replicas
// (data parallel), each of t devices (tensor parallel). A "sample" of Piper is one micro-batch. The
// time of a stage is
//
//   sum over its operators of p / d
//   + (2 * sum over edges that enter or leave it of (c + s) / d + 4 (d - 1) / d * sum w / N) / beta
//
// and the objective the largest of them: an edge between two stages counts in both, nothing fills
// or drains. Its memory is sum of (A * ceil(S / d) + B), where S adds up the replicas of this and
// all later stages: the micro-batches that 1F1B keeps in flight there.
//
// | here            | Piper                                                       |
// |-----------------|-------------------------------------------------------------|
// | PiperChoice     | an entry of TMPCs: p (time), A (per micro-batch), B (fixed) |
// | micro_batches   | N, mbsInBatch                                               |
// | bandwidth       | beta, bytes per unit of time                                |
// | memory          | M, maxMemoryPerDevice                                       |
// | edge bytes      | c, communicationCost                                        |
// | sync_from, _to  | s, syncTimeFw of the reader and syncTimeBw of the producer  |
// | parameter_bytes | w, parameterSize                                            |
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/graph/dag.h"

namespace stagewright {

struct PiperChoice {
  double time = 0;
  double per_micro_batch = 0;
  double fixed = 0;
};

// An operator on `degree` devices at once.
struct PiperMode {
  int32_t degree = 1;
  PiperChoice keep;
  std::optional<PiperChoice> recompute;
  double parameter_bytes = 0;
  std::vector<std::pair<int32_t, double>> sync_from;  // By predecessor.
  std::vector<std::pair<int32_t, double>> sync_to;    // By successor.
};

struct PiperEdge {
  int32_t from = 0;
  int32_t to = 0;
  double bytes = 0;
};

struct PiperProblem {
  Dag dag;
  std::vector<PiperEdge> edges;               // The edges of `dag`, each once.
  std::vector<std::vector<PiperMode>> modes;  // By operator; by rising degree.
  int64_t micro_batches = 1;
  int32_t devices = 1;
  double memory = 0;
  double bandwidth = 1;
  // All operators of a stage recompute, or none. The original chooses for each.
  bool recompute_by_stage = false;
  // What enters a stage is held as well, by every micro-batch in flight. Not in the original, whose
  // A has it.
  bool inputs_in_memory = false;
};

struct PiperStage {
  std::vector<int32_t> operators;  // Ascending.
  std::vector<bool> recompute;     // By index in `operators`.
  int32_t replicas = 1;            // d
  int32_t degree = 1;              // t
};

// Stages in a topological order of their graph.
using PiperPartition = std::vector<PiperStage>;

// The time of one stage. REQUIRES: every operator has a mode of the stage's degree, and the choices
// taken.
double PiperStageTime(const PiperProblem& problem, const PiperStage& stage);

// Bytes on each device of stage `s`.
double PiperStageMemory(const PiperProblem& problem, const PiperPartition& partition, size_t s);

// The largest stage time. O(operators + edges) per stage.
double PiperObjective(const PiperProblem& problem, const PiperPartition& partition);

// The mode of an operator with this degree; null if it has none.
const PiperMode* FindMode(const PiperProblem& problem, int32_t op, int32_t degree);

}  // namespace stagewright
