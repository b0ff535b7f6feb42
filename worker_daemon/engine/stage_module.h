// One stage of a program on LibTorch: runs the forward and the backward pass of one micro-batch at
// a time and keeps, in between, the autograd graph of each micro-batch in flight.
//
// Tensors that come from other stages are leaves: the backward pass ends there and returns their
// gradients. Gradients of parameters add up in the tensors of the ParameterStore. The gradient of
// the loss is seeded with the micro-batch's share of the mini-batch (mean) or with 1 (sum), so that
// the sum over micro-batches and replicas is the gradient of the whole mini-batch's loss (design
// section 4).
//
// Not thread-safe; all calls on one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "common/base/sample_range.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/schedule/program.h"
#include "worker_daemon/engine/keyed_dropout.h"
#include "worker_daemon/engine/operator_call.h"
#include "worker_daemon/engine/parameter_store.h"

namespace stagewright {

struct StageOptions {
  at::Device device = at::kCPU;
  bool training = true;  // False: dropout and batch statistics off, no backward pass.
  uint64_t seed = 0;     // Of the job; keys dropout.
  int64_t mini_batch = 1;
  double loss_weight = 1.0;  // Multiplies the gradient of the loss.
};

class StageModule {
 public:
  // A stage that gives the values `outputs` to others. `graph` and `parameters` must outlive it.
  // Errors of OperatorCall::Bind, before anything runs; INVALID_ARGUMENT if a node reads a
  // parameter that the store does not hold.
  static absl::StatusOr<std::unique_ptr<StageModule>> Create(const Graph& graph,
                                                             const ProgramStage& stage,
                                                             std::vector<ValueRef> outputs,
                                                             const ParameterStore& parameters,
                                                             const StageOptions& options);

  // What Forward takes: values of other stages, sorted, and inputs of the graph, by id.
  const std::vector<ValueRef>& received() const { return received_; }
  const std::vector<InputId>& inputs() const { return inputs_; }
  // What Forward gives, as passed to Create.
  const std::vector<ValueRef>& outputs() const { return outputs_; }
  bool has_loss() const { return loss_.has_value(); }
  bool has_prediction() const { return prediction_.has_value(); }
  // Nodes whose result depends on how the batch is cut (batch norm in training mode).
  const std::vector<NodeId>& batch_dependent() const { return batch_dependent_; }
  // Whether the backward pass gives a gradient for received()[i].
  bool needs_gradient(size_t i) const { return needs_gradient_[i]; }

  struct Tensors {
    std::vector<at::Tensor> received;  // Parallel to received().
    std::vector<at::Tensor> inputs;    // Parallel to inputs().
  };
  struct Forwarded {
    std::vector<at::Tensor> outputs;  // Parallel to outputs(); detached.
    at::Tensor loss;                  // Undefined unless has_loss(); detached.
    at::Tensor prediction;            // Undefined unless has_prediction(); detached.
  };
  enum class Keep {
    kNothing,  // No backward pass will follow.
    kGraph,    // What Backward needs.
    kInputs,   // What Recompute needs.
  };

  // Runs the samples `range` of the mini-batch of `step`. With Keep::kGraph or kInputs the range
  // stays in flight until its backward pass.
  absl::StatusOr<Forwarded> Forward(int64_t step, SampleRange range, Tensors tensors, Keep keep);

  // Runs the forward pass again, from the inputs that Forward kept with Keep::kInputs.
  absl::Status Recompute(int64_t step, SampleRange range);

  // Runs the backward pass of `range` from the gradients of the outputs (parallel to outputs();
  // undefined: none), adds the gradients of parameters and returns those of received(), parallel;
  // undefined where needs_gradient() is false or nothing flows back.
  absl::StatusOr<std::vector<at::Tensor>> Backward(SampleRange range,
                                                   const std::vector<at::Tensor>& gradients);

  // The two halves of Backward: the first keeps the range in flight for the second.
  absl::StatusOr<std::vector<at::Tensor>> BackwardInput(SampleRange range,
                                                        const std::vector<at::Tensor>& gradients);
  absl::Status BackwardWeight(SampleRange range);

  // Forgets every range in flight, after a step that failed.
  void Reset() { in_flight_.clear(); }

 private:
  // A micro-batch between its forward and its backward pass.
  struct InFlight {
    Tensors tensors;                    // Received ones are leaves.
    std::vector<at::Tensor> outputs;    // With their autograd graph.
    at::Tensor loss;                    // Ditto.
    std::vector<at::Tensor> gradients;  // Of the outputs, between the halves of Backward.
  };
  // A node of the stage, ready to run, and the values that are dead after it.
  struct Step {
    NodeId node;
    std::variant<OperatorCall, KeyedDropout> call;
    int32_t first_value = 0;         // Place of its outputs.
    std::vector<int32_t> last_uses;  // Places to clear afterwards.
  };
  // The roots of a backward pass and their gradients.
  struct Roots {
    std::vector<at::Tensor> tensors;
    std::vector<at::Tensor> gradients;
  };

  StageModule(const Graph& graph, const ParameterStore& parameters, const StageOptions& options)
      : graph_(&graph), parameters_(&parameters), options_(options) {}
  absl::Status AddNodes(const ProgramStage& stage);
  absl::Status FindOutputs();
  void FindLastUses();
  absl::Status CheckTensors(SampleRange range, const Tensors& tensors) const;
  absl::Status Evaluate(int64_t step, SampleRange range, const Tensors& tensors,
                        std::vector<at::Tensor>& values) const;
  void MakeLeaves(Tensors& tensors) const;
  absl::StatusOr<InFlight*> Find(SampleRange range);
  absl::StatusOr<Roots> RootsOf(SampleRange range, const InFlight& micro_batch,
                                const std::vector<at::Tensor>& gradients) const;
  double LossShare(SampleRange range) const;

  const Graph* graph_;
  const ParameterStore* parameters_;
  StageOptions options_;
  std::vector<Step> steps_;
  std::map<ValueRef, int32_t> place_;  // Of every value the stage computes or receives.
  int32_t num_places_ = 0;
  std::vector<ValueRef> received_, outputs_;
  std::vector<InputId> inputs_;
  std::vector<bool> needs_gradient_;
  std::vector<int32_t> output_places_;
  std::optional<int32_t> loss_, prediction_;  // Places.
  std::vector<NodeId> batch_dependent_;
  std::map<SampleRange, InFlight> in_flight_;
};

}  // namespace stagewright
