#include "worker_daemon/stage/gradient_watch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace stagewright {
namespace {

class Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(std::function<void(const at::Tensor&)> function) : function_(std::move(function)) {}
  void operator()(const at::Tensor& parameter) override { function_(parameter); }

 private:
  const std::function<void(const at::Tensor&)> function_;
};

// The gradient that came counts as one use of the memory where it became the parameter's, whose
// own is another.
constexpr size_t kOwnUses = 2;

void Isolate(const at::Tensor& parameter) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (gradient.storage().use_count() > kOwnUses) gradient = gradient.clone();
}

// By ParameterId: taken by a node of the parameter side of a pass that comes in halves.
std::vector<bool> TakenByParameterSide(const Graph& graph, const CompiledStage& stage) {
  std::vector<bool> taken(graph.parameters().size(), false);
  for (size_t i = 0; i < stage.segments.of_node.size(); ++i) {
    if (stage.segments.of_node[i] != SegmentPlan::kParameterSide) continue;
    for (ParameterId id : graph.Parameters(stage.steps[i].node)) taken[id.index()] = true;
  }
  return taken;
}

}  // namespace

void MoveGradient(const at::Tensor& used, const at::Tensor& newest) {
  if (used.is_same(newest) || !used.grad().defined()) return;
  if (newest.grad().defined()) {
    newest.mutable_grad() = newest.grad() + used.grad();
  } else {
    newest.mutable_grad() = used.grad();
  }
  used.mutable_grad() = at::Tensor();
}

GradientWatch::GradientWatch(const Graph& graph, const CompiledStage& stage,
                             const ParameterStore& parameters, const StageVersions& versions,
                             const AwaitedGradients* awaited)
    : awaited_(awaited), missing_(awaited == nullptr ? 0 : awaited->sets.size()) {
  if (awaited == nullptr) return;
  const std::vector<bool> late = TakenByParameterSide(graph, stage);
  for (size_t set = 0; set < awaited->sets.size(); ++set) {
    missing_[set] = static_cast<int>(awaited->sets[set].size());
    for (ParameterId id : awaited->sets[set]) {
      const int32_t place = stage.trained_place[id.index()];
      if (place < 0 || late[id.index()]) continue;
      watched_.push_back(versions.weights[place]);
      const at::Tensor& newest = parameters[id];
      torch::autograd::impl::set_post_acc_grad_hooks(
          watched_.back(), std::make_unique<Hook>([this, set, &newest](const at::Tensor& used) {
            const at::NoGradGuard no_grad;
            Isolate(used);
            MoveGradient(used, newest);
            if (--missing_[set] == 0) awaited_->complete(set);
          }));
    }
  }
}

GradientWatch::~GradientWatch() {
  for (const at::Tensor& tensor : watched_)
    torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
}

}  // namespace stagewright
