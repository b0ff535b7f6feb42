// A stage made ready to run: its nodes in order, bound to operators, with a place for each value.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/memory/segments.h"
#include "common/program/program.h"
#include "common/training/precision.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/torch/keyed_dropout.h"
#include "worker_daemon/torch/operator_call.h"

namespace stagewright {

struct StageOptions {
  at::Device device = at::kCPU;
  bool training = true;         // False: dropout and batch statistics off, no backward pass.
  uint64_t seed = 0;            // The job's seed; keys dropout.
  int64_t mini_batch = 1;       // Samples of a step.
  int64_t update_batch = 0;     // Samples that an optimizer step is made from; 0: the mini-batch.
  double loss_weight = 1.0;     // Multiplies the gradient of the loss.
  bool split_backward = false;  // Backward passes come in two halves (segmented_graph.h).
  // The type that the forward pass computes in, and what repeats it. Outputs and the prediction
  // come as they are computed, the loss in the graph's type.
  Precision precision = Precision::kGraph;
};

struct CompiledStage {
  // A node of the stage, ready to run, and the values that are dead after it.
  struct Step {
    NodeId node;
    std::variant<OperatorCall, KeyedDropout> call;
    int32_t first_value = 0;         // Place of its outputs.
    std::vector<int32_t> last_uses;  // Places to clear afterwards.
    bool casts_weights = false;      // Takes parameters in the smaller type (weight_casts.h).
    bool changes_buffers = false;    // OperatorCall::changes_buffers.
  };
  // A buffer that the stage updates.
  struct State {
    ParameterId parameter;
    int32_t place = 0;  // Place of the buffer's next value.
  };

  std::vector<Step> steps;
  std::map<ValueRef, int32_t> place;  // Place of every value that the stage computes or receives.
  int32_t num_places = 0;             // Values received have the first ones.
  std::vector<ValueRef> received;     // Values of other stages, sorted.
  // By received value: the type that it would have had if it had been computed here.
  std::vector<DType> received_types;
  std::vector<ValueRef> outputs;     // Values given to others.
  std::vector<InputId> inputs;       // Inputs of the graph, by id.
  std::vector<TotalId> totals;       // Totals of the batch, ascending.
  std::vector<bool> needs_gradient;  // By received value: the backward pass gives one for it.
  std::vector<int32_t> output_places;
  std::optional<int32_t> loss, prediction;  // Places.
  std::vector<bool> given;                  // By place: outputs, loss, prediction and states.
  // Nodes whose result depends on how the batch is cut: in training such as batch norm, in
  // evaluation those that compare samples then, too.
  std::vector<NodeId> batch_dependent;
  std::vector<ParameterId> trained;    // By the stage, ascending.
  std::vector<int32_t> trained_place;  // Index in `trained` by ParameterId; -1: not trained here.
  std::vector<State> states;
  // Index in `states` by ParameterId and by place; -1: not updated here, no next value of one.
  std::vector<int32_t> state_place, state_of_place;
  SegmentPlan segments;  // With split_backward.

  // Where the values that the stage computes begin.
  int32_t first_own() const { return static_cast<int32_t>(received.size()); }
};

// The stage that gives the values `outputs` to others. `graph` must outlive it. Errors of
// OperatorCall::Bind; INVALID_ARGUMENT if a node reads a parameter that the store does not hold.
absl::StatusOr<CompiledStage> CompileStage(const Graph& graph, const ProgramStage& stage,
                                           std::vector<ValueRef> outputs,
                                           const ParameterStore& parameters,
                                           const StageOptions& options);

}  // namespace stagewright
