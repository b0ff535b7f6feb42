// Bytes of a stage's work, from the cost model; asked once per (stage, samples).
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/memory/segments.h"
#include "common/memory/stage_memory.h"
#include "common/memory/stage_tape.h"
#include "common/program/program.h"
#include "common/training/autocast.h"

namespace stagewright {

// Whose gradients go after every backward pass (Reduction::each_pass); empty: no one's.
struct PassingGradients {
  std::vector<bool> parameters;  // By parameter.
  std::vector<bool> stages;      // By stage: its planning-only nodes'.
};

class StageBytes {
 public:
  // `split`, by stage: its backward passes come in halves. All references outlive it.
  StageBytes(const MessageTypes& types, const CostModel& costs,
             const std::vector<ProgramStage>& stages, const std::vector<Channel>& channels,
             std::vector<bool> split, PassingGradients passing = {});
  // Memory of one replica that runs `samples` samples at once. O(nodes of the stage and what they
  // read) at the first call for a number of samples; the reference lasts as long as the object.
  const StageMemory& Of(StageId stage, int64_t samples);

  // Planning-only nodes are in the stage: gradients of what it receives are not in its figures.
  bool Profiled(StageId stage) { return TapeOf(stage).profiled; }
  bool split(StageId stage) const { return split_[stage.index()]; }
  const MessageTypes& types() const { return types_; }
  Precision precision() const { return types_.precision(); }

 private:
  const StageTape& TapeOf(StageId stage);

  const Graph& graph() const { return types_.graph(); }

  const MessageTypes& types_;
  const CostModel& costs_;
  const std::vector<ProgramStage>& stages_;
  std::vector<bool> split_;
  PassingGradients passing_;
  NodeOrder order_;
  std::vector<GivenValues> given_;               // By stage.
  std::vector<std::optional<StageTape>> tapes_;  // By stage.
  std::map<std::pair<StageId, int64_t>, StageMemory> known_;
};

// Bytes of what a device holds for the parameters of its stages, each once however many of them use
// it: parameters and, in training, gradients and optimizer state.
Bytes ResidentBytesOf(const Graph& graph, const std::vector<ProgramStage>& stages,
                      const std::vector<StageId>& on_device, Optimizer optimizer, bool training);

// Optimizer state of the parameters of a reduction that others of its devices hold instead of this
// one; 0 unless they share it out. `stage`: the first of the reduction's. O(n log n).
Bytes StateOfOthers(const Graph& graph, const ProgramStage& stage, const Reduction& reduction,
                    DeviceId device, Optimizer optimizer);

// Gradient bytes that a backward pass makes and that go when the reduction has summed them
// (Reduction::each_pass).
struct PassingBytes {
  Bytes named = 0;     // Those of parameters.
  Bytes profiled = 0;  // Those of planning-only nodes whose profile tells them apart.
  Bytes all() const { return named + profiled; }
};

// Those of one of the stage's reductions; none unless it has each_pass. O(n).
PassingBytes PassingBytesOf(const Graph& graph, const ProgramStage& stage,
                            const Reduction& reduction);

// What the device keeps of them from the first sum to the update. O(n log n).
Bytes KeptSums(const Graph& graph, const ProgramStage& stage, const Reduction& reduction,
               DeviceId device);

// The part of ResidentBytesOf that is gradients which come with the first backward pass and go with
// the update: all but those of planning-only nodes, which have one figure for everything.
Bytes GradientBytesOf(const Graph& graph, const std::vector<ProgramStage>& stages,
                      const std::vector<StageId>& on_device);

// Bytes of one version of what a stage trains: its parameters, without gradients and optimizer
// state.
Bytes WeightBytesOf(const Graph& graph, const ProgramStage& stage);

// Bytes of the copies of its weights that a stage keeps in a mixed precision from one update to the
// next (worker_daemon/torch/weight_casts.h); 0 in others.
Bytes CastBytesOf(const Graph& graph, const ProgramStage& stage, Precision precision);

}  // namespace stagewright
