// Bytes of a stage's work, from the cost model; asked once per (stage, samples).
#pragma once

#include <map>
#include <utility>

#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/schedule/program.h"

namespace stagewright {

struct ShareBytes {
  Bytes saved = 0;      // Kept from the forward to the backward pass.
  Bytes outputs = 0;    // Kept likewise, as roots of the backward pass only.
  Bytes workspace = 0;  // Largest over the nodes: they run one after the other.
};

// Of a backward pass in two halves.
struct SplitBytes {
  // At most held during the input half, what was saved included, workspace not.
  Bytes input_half = 0;
  // Held until the weight half: what nodes with parameters keep and the gradients of their outputs.
  Bytes between = 0;
};

class StageBytes {
 public:
  StageBytes(const Graph& graph, const CostModel& costs, const std::vector<ProgramStage>& stages,
             const std::vector<Channel>& channels);
  // Of one replica that runs `samples` samples at once. O(nodes of the stage) at the first call for
  // a number of samples; the reference lasts as long as the object.
  const ShareBytes& Of(StageId stage, int64_t samples);
  // Ditto.
  const SplitBytes& SplitOf(StageId stage, int64_t samples);

 private:
  const Graph& graph_;
  const CostModel& costs_;
  const std::vector<ProgramStage>& stages_;
  std::vector<std::vector<ValueRef>>
      roots_;  // By stage: storage of its outputs that no node saves.
  std::map<std::pair<StageId, int64_t>, ShareBytes> known_;
  std::map<std::pair<StageId, int64_t>, SplitBytes> known_splits_;
};

// Bytes that a device holds throughout: parameters and, in training, gradients and optimizer state,
// each once however many of its stages use it.
Bytes ResidentBytesOf(const Graph& graph, const std::vector<ProgramStage>& stages,
                      const std::vector<StageId>& on_device, Optimizer optimizer, bool training);

// Bytes of one version of what a stage trains: its parameters, without gradients and optimizer
// state.
Bytes WeightBytesOf(const Graph& graph, const ProgramStage& stage);

}  // namespace stagewright
