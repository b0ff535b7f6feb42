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
// a stage with a version lag use parameters that many updates older, which the module keeps.
//
// A buffer that training changes (Graph::state_updates) keeps its value while a pass runs; Forward
// puts the next value aside for who runs the module. What repeats a forward pass reads the value
// that this had, and changes no statistics of a normalisation again. In evaluation the next value
// is the present one. Not thread-safe; all calls on one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "common/program/step_samples.h"
#include "worker_daemon/stage/compiled_stage.h"
#include "worker_daemon/stage/gradient_watch.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/stage_evaluation.h"
#include "worker_daemon/stage/stage_pass.h"
#include "worker_daemon/torch/weight_casts.h"

namespace stagewright {

class StageModule {
 public:
  // A stage that gives the values `outputs` to others. `graph` and `parameters` must outlive it.
  // Errors of CompileStage.
  static absl::StatusOr<std::unique_ptr<StageModule>> Create(const Graph& graph,
                                                             const ProgramStage& stage,
                                                             std::vector<ValueRef> outputs,
                                                             const ParameterStore& parameters,
                                                             const StageOptions& options);

  // As in the CompiledStage.
  const std::vector<ValueRef>& received() const { return stage_.received; }
  const std::vector<InputId>& inputs() const { return stage_.inputs; }
  const std::vector<ValueRef>& outputs() const { return stage_.outputs; }
  const std::vector<TotalId>& totals() const { return stage_.totals; }
  const std::vector<NodeId>& batch_dependent() const { return stage_.batch_dependent; }
  bool needs_gradient(size_t i) const { return stage_.needs_gradient[i]; }
  bool has_loss() const { return stage_.loss.has_value(); }

  using Tensors = StageTensors;
  struct Forwarded {
    std::vector<at::Tensor> outputs;  // Parallel to outputs(), of the types computed in; detached.
    at::Tensor loss;                  // Undefined unless has_loss(); detached.
    at::Tensor prediction;            // As an output, never a copy; undefined unless made here.
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
  // undefined where needs_gradient() is false or nothing flows back. `awaited` may be null.
  absl::StatusOr<std::vector<at::Tensor>> Backward(const StepSamples& samples,
                                                   const std::vector<at::Tensor>& gradients,
                                                   const AwaitedGradients* awaited = nullptr);

  // The two halves of Backward: the first keeps the samples in flight for the second, with what
  // that needs. REQUIRES: StageOptions::split_backward; FAILED_PRECONDITION otherwise.
  absl::StatusOr<std::vector<at::Tensor>> BackwardInput(const StepSamples& samples,
                                                        const std::vector<at::Tensor>& gradients);
  absl::Status BackwardWeight(const StepSamples& samples, const AwaitedGradients* awaited = {});

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
  // Forgets samples in flight and older versions.
  void Reset();

 private:
  StageModule(const Graph& graph, const ParameterStore& parameters, const StageOptions& options,
              CompiledStage stage)
      : graph_(&graph),
        parameters_(&parameters),
        options_(options),
        stage_(std::move(stage)),
        casts_(options.precision),
        next_states_(stage_.states.size()) {}

  absl::Status CheckTensors(const StepSamples& samples, const Tensors& tensors) const;
  absl::StatusOr<std::vector<at::Tensor>> Evaluate(const StepSamples& samples,
                                                   const Tensors& tensors, StagePass& pass,
                                                   bool again);
  void KeepStates(const std::vector<at::Tensor>& values);
  std::vector<at::Tensor> CurrentWeights() const;
  std::vector<at::Tensor> CurrentStates() const;
  // The gradient that a pass over so many samples starts from; undefined without a loss.
  at::Tensor LossGradient(int64_t samples) const;
  absl::Status CheckGradients(const StepSamples& samples,
                              const std::vector<at::Tensor>& gradients) const;
  void MakeLeaves(Tensors& tensors) const;
  absl::StatusOr<StagePass*> Find(const StepSamples& samples);

  const Graph* graph_;
  const ParameterStore* parameters_;
  const StageOptions options_;
  const CompiledStage stage_;
  double loss_scale_ = 1;
  WeightCasts casts_;
  // Parallel to CompiledStage::states: their next values, undefined until a training pass forward
  // has run.
  std::vector<at::Tensor> next_states_;
  std::map<StepSamples, StagePass> in_flight_;
  size_t version_lag_ = 0;
  // The last version_lag_ versions before the newest, fewer at the start of a run: what
  // CompiledStage::trained were, oldest first.
  std::deque<std::vector<at::Tensor>> older_versions_;
};

}  // namespace stagewright
