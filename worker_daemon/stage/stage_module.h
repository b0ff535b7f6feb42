// One stage of a program on LibTorch: runs the forward and the backward pass of one micro-batch at
// a time and keeps, in between, the autograd graph of each micro-batch in flight.
//
// Tensors that come from other stages are leaves: the backward pass ends there and returns their
// gradients. Gradients of parameters add up in the tensors of the ParameterStore. The gradient of
// the loss is seeded with the micro-batch's share of the mini-batch (mean) or with 1 (sum), so that
// the sum over micro-batches and replicas is the gradient of the whole mini-batch's loss (design
// section 4). In an asynchronous program every micro-batch has an update of its own: its gradient
// is that of the micro-batch's loss, so the share is the replica's of the micro-batch.
//
// A micro-batch's backward pass uses the parameters of its forward pass, even if the store holds
// newer versions by then (ParameterStore::Renew); the gradients go to the newest. Forward passes of
// a stage with a version lag use parameters that many updates older than the newest, which the
// module keeps.
//
// A buffer that training changes (Graph::state_updates) keeps its value while a pass runs; Forward
// puts the next value aside for who runs the module. What repeats a forward pass reads the value
// that this had, and changes no statistics of a normalisation again. In evaluation the next value
// is the present one.
//
// Not thread-safe; all calls on one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "common/program/step_samples.h"
#include "common/training/precision.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/segmented_graph.h"
#include "worker_daemon/torch/keyed_dropout.h"
#include "worker_daemon/torch/operator_call.h"
#include "worker_daemon/torch/weight_casts.h"

namespace stagewright {

struct StageOptions {
  at::Device device = at::kCPU;
  bool training = true;         // False: dropout and batch statistics off, no backward pass.
  uint64_t seed = 0;            // The job's seed; keys dropout.
  int64_t mini_batch = 1;       // Samples of a step.
  int64_t update_batch = 0;     // Samples that an optimizer step is made from; 0: the mini-batch.
  double loss_weight = 1.0;     // Multiplies the gradient of the loss.
  bool split_backward = false;  // Backward passes come in two halves (segmented_graph.h).
  // The type that the forward pass computes in, and what repeats it; outputs, loss and prediction
  // are of the graph's types.
  Precision precision = Precision::kGraph;
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
  // Totals of the batch that Forward takes, ascending.
  const std::vector<TotalId>& totals() const { return totals_; }
  // Nodes whose result depends on how the batch is cut: in training such as batch norm, in
  // evaluation those that compare samples then, too.
  const std::vector<NodeId>& batch_dependent() const { return batch_dependent_; }
  // Whether the backward pass gives a gradient for received()[i].
  bool needs_gradient(size_t i) const { return needs_gradient_[i]; }

  struct Tensors {
    std::vector<at::Tensor> received;  // Parallel to received().
    std::vector<at::Tensor> inputs;    // Parallel to inputs().
    std::vector<at::Tensor> totals;    // Parallel to totals().
  };
  struct Forwarded {
    std::vector<at::Tensor> outputs;  // Parallel to outputs(); detached.
    at::Tensor loss;                  // Undefined unless has_loss(); detached.
    at::Tensor prediction;            // Undefined unless has_prediction(); detached.
  };
  enum class Keep {
    kNothing,  // No backward pass will follow.
    kGraph,    // What Backward needs.
    kInputs,   // What Recompute needs but for the inputs of the graph.
  };

  // Runs some samples of a step. With Keep::kGraph or kInputs they stay in flight until their
  // backward pass; those of several steps can be in flight together.
  absl::StatusOr<Forwarded> Forward(const StepSamples& samples, Tensors tensors, Keep keep);

  // Runs the forward pass again, from the received tensors that Forward kept with Keep::kInputs and
  // `inputs`, equal to those that Forward had.
  absl::Status Recompute(const StepSamples& samples, std::vector<at::Tensor> inputs);

  // Runs the backward pass of `samples` from the gradients of the outputs (parallel to outputs();
  // undefined: none), adds the gradients of parameters and returns those of received(), parallel;
  // undefined where needs_gradient() is false or nothing flows back.
  absl::StatusOr<std::vector<at::Tensor>> Backward(const StepSamples& samples,
                                                   const std::vector<at::Tensor>& gradients);

  // The two halves of Backward: the first keeps the samples in flight for the second, with what
  // that needs. REQUIRES: StageOptions::split_backward; FAILED_PRECONDITION otherwise.
  absl::StatusOr<std::vector<at::Tensor>> BackwardInput(const StepSamples& samples,
                                                        const std::vector<at::Tensor>& gradients);
  absl::Status BackwardWeight(const StepSamples& samples);

  // The next values of buffers, by the last training pass forward; then there are none.
  std::vector<std::pair<ParameterId, at::Tensor>> TakeStates();

  // From now on the gradient of the loss is multiplied by this, besides StageOptions::loss_weight.
  void SetLossScale(double scale) { loss_scale_ = scale; }

  // To call before the stage's parameters change: with a version lag it keeps what they are for
  // forward passes to come, and drops the version that no more of them use.
  void KeepVersion();

  // Whether a micro-batch in flight was run forward with the store's present tensor of `id`, or it
  // is kept for forward passes to come.
  bool Uses(ParameterId id) const;

  // Forgets all samples in flight and older versions of parameters: at the end of a run, or after a
  // step that failed.
  void Reset();

 private:
  // What a pass reads of the parameters that change.
  struct Versions {
    std::vector<at::Tensor> weights;  // Parallel to trained_.
    std::vector<at::Tensor> states;   // Parallel to states_.
  };
  // A micro-batch between its forward and its backward pass.
  struct InFlight {
    Tensors tensors;  // Received ones are leaves.
    Versions versions;
    std::vector<at::Tensor> outputs;         // With their autograd graph.
    at::Tensor loss;                         // With its autograd graph.
    std::optional<SegmentedGraph> segments;  // Instead of outputs and loss: a split backward pass.
    bool input_done = false;                 // The input half of a split backward pass has run.
  };
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
    at::Tensor next;    // Undefined until a training pass forward has run.
  };
  // The roots of a backward pass and their gradients.
  struct Roots {
    std::vector<at::Tensor> tensors;
    std::vector<at::Tensor> gradients;
  };

  StageModule(const Graph& graph, const ParameterStore& parameters, const StageOptions& options)
      : graph_(&graph), parameters_(&parameters), options_(options), casts_(options.precision) {}
  absl::Status AddNodes(const ProgramStage& stage);
  absl::Status AddStates();
  absl::Status FindOutputs();
  std::vector<SegmentNode> SegmentNodes() const;
  absl::Status CheckTensors(const StepSamples& samples, const Tensors& tensors) const;
  // `again`: what ran before is repeated.
  absl::Status Evaluate(const StepSamples& samples, const Tensors& tensors,
                        const Versions& versions, bool again, SegmentedGraph* segments,
                        std::vector<at::Tensor>& values) const;
  void KeepStates(const std::vector<at::Tensor>& values);
  std::vector<at::Tensor> CurrentWeights() const;
  std::vector<at::Tensor> CurrentStates() const;
  void KeepRoots(const std::vector<at::Tensor>& values, InFlight& pass) const;
  at::Tensor LossGradient(int64_t samples) const;
  absl::Status CheckGradients(const StepSamples& samples,
                              const std::vector<at::Tensor>& gradients) const;
  absl::Status RunInputHalf(const StepSamples& samples, const std::vector<at::Tensor>& gradients,
                            InFlight& pass, std::vector<at::Tensor>& result) const;
  absl::Status RunWeightHalf(InFlight& pass) const;
  void MoveGradients(const InFlight& pass) const;
  void MakeLeaves(Tensors& tensors) const;
  absl::StatusOr<InFlight*> Find(const StepSamples& samples);
  absl::StatusOr<Roots> RootsOf(const StepSamples& samples, const InFlight& pass,
                                const std::vector<at::Tensor>& gradients) const;
  double LossShare(int64_t samples) const;

  const Graph* graph_;
  const ParameterStore* parameters_;
  StageOptions options_;
  std::vector<Step> steps_;
  std::map<ValueRef, int32_t> place_;  // Place of every value that the stage computes or receives.
  int32_t num_places_ = 0;
  std::vector<ValueRef> received_, outputs_;
  std::vector<InputId> inputs_;
  std::vector<TotalId> totals_;
  std::vector<bool> needs_gradient_;
  std::vector<int32_t> output_places_;
  std::optional<int32_t> loss_, prediction_;  // Places.
  std::vector<bool> given_;                   // By place: outputs, loss and prediction.
  double loss_scale_ = 1;
  mutable WeightCasts casts_;  // A cache: it changes no result.
  std::vector<NodeId> batch_dependent_;
  std::vector<ParameterId> trained_;    // By the stage, ascending.
  std::vector<int32_t> trained_place_;  // Index in trained_ by ParameterId; -1: not trained here.
  std::vector<State> states_;
  // Index in states_ by ParameterId and by place; -1: not updated here, no next value of one.
  std::vector<int32_t> state_place_, state_of_place_;
  SegmentPlan segments_;  // With split_backward.
  std::map<StepSamples, InFlight> in_flight_;
  size_t version_lag_ = 0;
  // The last version_lag_ versions before the newest, fewer at the start of a run: what trained_
  // were, oldest first.
  std::deque<std::vector<at::Tensor>> older_versions_;
};

}  // namespace stagewright
