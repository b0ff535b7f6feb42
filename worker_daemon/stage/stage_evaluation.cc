#include "worker_daemon/stage/stage_evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "common/training/autocast.h"
#include "worker_daemon/stage/operator_watch.h"
#include "worker_daemon/torch/autocast.h"
#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

// Where `id` is in a sorted list that has it.
template <typename Id>
size_t PlaceIn(const std::vector<Id>& sorted, Id id) {
  return static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), id) - sorted.begin());
}

class Evaluation {
 public:
  Evaluation(const StageEvaluator& evaluator, const StepSamples& samples,
             const StageTensors& tensors, const StageVersions& versions, bool again,
             SegmentedGraph* segments)
      : evaluator_(evaluator),
        stage_(evaluator.stage),
        samples_(samples),
        tensors_(tensors),
        versions_(versions),
        again_(again),
        segments_(segments),
        values_(stage_.num_places) {
    std::copy(tensors.received.begin(), tensors.received.end(), values_.begin());
    if (segments_ == nullptr) return;
    cut_.resize(stage_.num_places);
    for (size_t i = 0; i < stage_.received.size(); ++i) {
      if (stage_.needs_gradient[i])
        cut_[i] = segments_->CutOffReceived(static_cast<int32_t>(i), values_[i]);
    }
  }

  absl::StatusOr<std::vector<at::Tensor>> Run() {
    const AutocastScope autocast(evaluator_.options.device.type(), evaluator_.options.precision);
    std::vector<at::Tensor> outputs;
    for (size_t n = 0; n < stage_.steps.size(); ++n) {
      outputs.clear();
      RETURN_IF_ERROR(
          OperatorWatch::Forward(stage_.steps[n].node, [&] { return RunStep(n, outputs); }));
      Keep(stage_.steps[n], outputs);
      for (int32_t place : stage_.steps[n].last_uses) {
        values_[place] = at::Tensor();
        if (segments_ != nullptr) cut_[place] = at::Tensor();
      }
    }
    return std::move(values_);
  }

 private:
  bool mixed() const { return IsMixed(evaluator_.options.precision); }

  absl::Status RunStep(size_t n, std::vector<at::Tensor>& outputs) {
    const CompiledStage::Step& step = stage_.steps[n];
    const TensorSource source = [this, n](const Argument& argument) -> const at::Tensor& {
      return Resolve(argument, n);
    };
    if (const auto* call = std::get_if<OperatorCall>(&step.call))
      return call->Run(samples_.range.size(), source, outputs, mixed());
    const KeyedDropout& dropout = std::get<KeyedDropout>(step.call);
    const RandomKey key{evaluator_.options.seed, samples_.step, samples_.range.begin};
    absl::Status status;
    RETURN_IF_ERROR(Annotate(Guarded([&] {
                               status = dropout.Run(source(dropout.input()), samples_.range.size(),
                                                    key, outputs);
                             }),
                             NameOf(evaluator_.graph.node(step.node))));
    return status;
  }

  // What the n-th step takes for an argument.
  const at::Tensor& Resolve(const Argument& argument, size_t n) {
    if (const auto* value = std::get_if<ValueRef>(&argument.value)) {
      const int32_t place = stage_.place.find(*value)->second;
      const bool across =
          segments_ != nullptr && stage_.segments.of_place[place] != stage_.segments.of_node[n];
      return across && cut_[place].defined() ? cut_[place] : values_[place];
    }
    if (const auto* parameter = std::get_if<ParameterId>(&argument.value))
      return ResolveParameter(*parameter, stage_.steps[n]);
    if (const auto* total = std::get_if<TotalId>(&argument.value))
      return tensors_.totals[PlaceIn(stage_.totals, *total)];
    return tensors_.inputs[PlaceIn(stage_.inputs, std::get<InputId>(argument.value))];
  }

  const at::Tensor& ResolveParameter(ParameterId parameter, const CompiledStage::Step& step) {
    const int32_t trained = stage_.trained_place[parameter.index()];
    const int32_t state = stage_.state_place[parameter.index()];
    const at::Tensor& weight = trained >= 0 ? versions_.weights[trained]
                               : state >= 0 ? versions_.states[state]
                                            : evaluator_.parameters[parameter];
    if (again_ && step.changes_buffers && trained < 0) return spare_.emplace_back(weight.clone());
    return step.casts_weights ? evaluator_.casts.Get(parameter, weight) : weight;
  }

  void Keep(const CompiledStage::Step& step, std::vector<at::Tensor>& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int32_t place = step.first_value + static_cast<int32_t>(i);
      // A buffer keeps its type, as it does where it is changed in place.
      if (mixed() && stage_.state_of_place[place] >= 0 && outputs[i].is_floating_point()) {
        const DType type = evaluator_.graph.node(step.node).outputs[i].dtype;
        outputs[i] = outputs[i].to(ToScalarType(type));
      }
      if (!evaluator_.options.training && stage_.state_of_place[place] >= 0)
        outputs[i] = versions_.states[stage_.state_of_place[place]];
      if (segments_ != nullptr) cut_[place] = segments_->CutOff(place, outputs[i]);
      values_[place] = std::move(outputs[i]);
    }
  }

  const StageEvaluator& evaluator_;
  const CompiledStage& stage_;
  const StepSamples samples_;
  const StageTensors& tensors_;
  const StageVersions& versions_;
  const bool again_;
  SegmentedGraph* const segments_;
  std::vector<at::Tensor> values_;  // By place.
  std::vector<at::Tensor> cut_;  // With segments: values as other segments than their own see them.
  std::deque<at::Tensor> spare_;  // Stands for buffers that a repeated pass must not change.
};

}  // namespace

absl::StatusOr<std::vector<at::Tensor>> StageEvaluator::Run(const StepSamples& samples,
                                                            const StageTensors& tensors,
                                                            const StageVersions& versions,
                                                            bool again,
                                                            SegmentedGraph* segments) const {
  return Evaluation(*this, samples, tensors, versions, again, segments).Run();
}

}  // namespace stagewright
