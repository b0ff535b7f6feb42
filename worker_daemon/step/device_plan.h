// What a worker derives once from a program for one device: which stages it runs, which action
// feeds which, and how micro-batches are handed over between its own stages.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/program.h"

namespace stagewright {

// A hand-over between two stages of the device, or a message's place in a tensor.
struct LocalPiece {
  int32_t channel = -1;
  SampleRange samples;
};

// A mark of a backward pass (PassMark) that sums of the device wait for.
struct MarkPlan {
  int32_t node = 0;
  std::vector<ParameterId> parameters;  // Those that they sum.
};

struct ActionPlan {
  int32_t producer = -1;       // Sends: index, in their section, of the forward or backward whose
                               // result is sent.
  std::vector<int32_t> sends;  // Forwards and backwards: the sends of their result.
  std::vector<LocalPiece> local;  // Forwards and backwards: pieces for other stages of the device.
  bool recomputed = false;        // Forwards: a recompute of the same samples follows.
  std::vector<ParameterId> updates;  // Optimizer steps: parameters to update, ascending.
  std::vector<MarkPlan> marks;       // Backward passes and weight halves.
};

struct StagePlan {
  StageId stage;
  std::vector<ValueRef> outputs;   // Values that other stages read, sorted.
  std::vector<InputId> inputs;     // Inputs that its nodes read, ascending.
  std::optional<InputId> target;   // ClassTarget(), where the prediction is made.
  std::vector<int32_t> into, out;  // Channels to and from the stage on this device, ascending.
  bool split_backward = false;     // Its backward passes come in two halves.
};

// One of the lists of actions of a device's program.
struct SectionPlan {
  const std::vector<ProgramAction>* program = nullptr;
  std::vector<ActionPlan> actions;  // Parallel to it.
  int32_t computes = 0;             // Actions of the compute lane.
};

// Totals of the batch (Graph::totals) and what it takes to work them out.
struct TotalsPlan {
  std::vector<TotalId> values;  // Ascending, as all below.
  std::vector<int32_t> nodes;   // Indices of BatchTotals::nodes.
  std::vector<InputId> inputs;
  std::vector<ParameterId> parameters;
};
TotalsPlan PlanTotals(const Graph& graph, std::vector<TotalId> values);

struct DevicePlan {
  const DeviceProgram* program = nullptr;
  std::vector<StagePlan> stages;  // Ascending.
  SectionPlan prologue, body, epilogue;
  bool has_sections = false;  // Prologue and epilogue: see program.h.
  TotalsPlan totals;          // The totals that the stages read.
  // Parameters that the stages and these totals use, ascending.
  std::vector<ParameterId> parameters;
  // Inputs that the stages and these totals use, with ClassTarget() where the prediction is made.
  std::vector<InputId> inputs;
  bool communicates = false;  // With other devices.
  bool reduces = false;       // Takes part in collectives.

  bool Has(StageId stage) const;
  // REQUIRES: Has(stage).
  const StagePlan& OfStage(StageId stage) const;
};

// The input that holds each sample's class, if the graph classifies: its prediction is [samples,
// classes] and it has one target of type int64[samples].
std::optional<InputId> ClassTarget(const Graph& graph);

// INVALID_ARGUMENT, naming device and action, if the program does not fit the graph or has no work
// for the device. `program` must outlive the plan.
absl::StatusOr<DevicePlan> MakeDevicePlan(const Graph& graph, const Program& program,
                                          DeviceId device);

}  // namespace stagewright
