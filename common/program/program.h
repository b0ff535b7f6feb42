// A plan lowered to one explicit program per device: what the simulator times is what the workers
// run (design: one schedule). Workers never rebuild any of this from parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/graph/tensor.h"
#include "common/program/action.h"

namespace stagewright {

// A stage as workers need it.
struct ProgramStage {
  std::vector<NodeId> nodes;       // Own nodes, topological order.
  std::vector<NodeId> replicated;  // Constant nodes recomputed here, topological order.
  std::vector<DeviceId> devices;   // Replicas; replica r is devices[r].
  int64_t micro_batch = 1;         // Samples over all replicas.
  bool has_backward = true;        // False where nothing in or above the stage trains.
  // Asynchronous programs with vertical sync: a forward pass uses the weights as they were so many
  // updates of the stage before the newest (at the start: the first ones).
  int32_t version_lag = 0;
};

// An edge of the stage graph between one producing and one consuming replica.
struct Channel {
  StageId from;
  StageId to;
  DeviceId source;
  DeviceId target;
  // Tensors sent forward, in message order; empty for a control edge.
  std::vector<ValueRef> values;
  // Tensors sent forward whose gradient comes back, in message order.
  std::vector<ValueRef> gradient_values;
  Bytes activation_bytes_per_sample = 0;
  Bytes gradient_bytes_per_sample = 0;
  bool has_gradient = false;  // Gradient messages are sent (possibly empty ones on control edges).

  // Producer and consumer share a device: no messages, tensors are handed over.
  bool local() const { return source == target; }
};

// A set of (stage, device) replicas that hold the same parameters, whose gradients are summed
// before the optimizer step: the replicas of a stage, and all stages that share a tied parameter.
// The parameters of the replicas of a stage may be several reductions, one for each bucket. An
// optimizer step that names one of them updates the parameters of those of its stage alone up to
// that one; the last step of the stage, which names none, updates all others.
struct Reduction {
  std::vector<ParameterId> parameters;  // By id.
  std::vector<DeviceId> devices;        // By id, each once; at least two but for a norm.
  Bytes bytes = 0;                      // Gradient bytes summed.
  std::vector<StageId> stages;          // Stages that hold any of the parameters; ascending.
  // Not gradients but their squared norm is summed, of all parameters of all stages, after all
  // other sums and before all optimizer steps. At most one, the last; it names no parameters.
  bool gradient_norm = false;
  // The devices, replicas of one stage, share out the parameters (parameter_shares.h): each sums
  // the gradients of its share alone, by a reduce-scatter instead of an all-reduce, and updates
  // that; after the step that does, an all-gather brings all parameters up to date.
  bool sharded = false;
  // Sharded: the gradients of every micro-batch are summed after its backward pass and added to the
  // sums of the device's share, all that is left of them then. Else those of all are summed once.
  bool each_pass = false;
};

// A place in a backward pass, whole or its weight half: the gradients that the stage's nodes from
// `node` on make are complete. A pass reaches its marks while it runs, and all of them by its end.
struct PassMark {
  int32_t action = 0;  // The pass, in the same section.
  int32_t node = 0;    // Index in ProgramStage::nodes.
  friend auto operator<=>(const PassMark&, const PassMark&) = default;
};

struct ProgramAction {
  Action action;
  // Earlier or later actions of the same section that must finish first; sorted.
  std::vector<int32_t> after;
  Bytes acquire = 0;  // Device memory taken when the action starts.
  Bytes release = 0;  // Device memory given back when it finishes.
  // Sums (IsSum): marks that must be reached first, so that gradients are summed while the backward
  // pass that makes others goes on; sorted.
  std::vector<PassMark> after_marks = {};
  friend bool operator==(const ProgramAction&, const ProgramAction&) = default;
};

// The work of one device. Actions of one lane run in list order, one at a time: compute actions
// form one lane; transfers form a lane per (channel, kind); collectives form one lane. Lanes are
// only tied by `after`.
//
// Synchronous programs are all body, run once per step. Asynchronous ones run the prologue, the
// body for every step but the last, and the epilogue for the last. Their sections follow each other
// in every lane without a barrier, as Unroll (unroll.h) writes it out, and the samples of a section
// from mini_batch on are those of the next step.
struct DeviceProgram {
  DeviceId device;
  Bytes resident = 0;  // Parameters, their stashed versions, optimizer state, message buffers.
  std::vector<ProgramAction> prologue;
  std::vector<ProgramAction> body;
  std::vector<ProgramAction> epilogue;
};

struct Program {
  int64_t mini_batch = 1;
  bool training = true;  // False: forward passes only (evaluation).
  // Updates follow every backward pass, and a micro-batch's backward pass uses the weights of its
  // forward pass (lower.h).
  bool asynchronous = false;
  std::vector<ProgramStage> stages;
  std::vector<Channel> channels;
  std::vector<Reduction> reductions;
  std::vector<DeviceProgram> devices;  // By device id; only devices that have work.
};

// The lane of an action: actions with equal keys run in list order, one at a time.
struct LaneKey {
  int32_t channel = -1;  // -1: compute
  int32_t kind = 0;
  friend auto operator<=>(const LaneKey&, const LaneKey&) = default;
};
LaneKey LaneOf(const Action& action);

}  // namespace stagewright
