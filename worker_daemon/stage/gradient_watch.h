// Says, while a backward pass still runs, which gradients of parameters are complete.
//
// LibTorch adds a parameter's gradient up once a pass, when all that its nodes make of it is there;
// a hook learns of it on the thread of the pass. It moves the gradient to the newest version of the
// parameter, and into memory of its own where others of the pass share it, so that whoever is told
// may write to it at once. In a weight half, what the parameter side takes comes last, after what
// other nodes make of it, and is not told.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include "common/base/ids.h"
#include "common/graph/graph.h"
#include "worker_daemon/stage/compiled_stage.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/stage_evaluation.h"

namespace stagewright {

// Sets of parameters, no two with a common one, whose gradients are awaited. `complete` is called
// with the index of a set, at most once for each, on a thread of the pass; it must not throw.
struct AwaitedGradients {
  std::vector<std::vector<ParameterId>> sets;
  std::function<void(size_t set)> complete;
};

// Adds the gradient of a version of a parameter to that of the newest.
void MoveGradient(const at::Tensor& used, const at::Tensor& newest);

// Watches the passes that run while it lives. No set is told whose gradients do not all come.
class GradientWatch {
 public:
  // All arguments outlive it. `awaited` may be null.
  GradientWatch(const Graph& graph, const CompiledStage& stage, const ParameterStore& parameters,
                const StageVersions& versions, const AwaitedGradients* awaited);
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;
  ~GradientWatch();

 private:
  const AwaitedGradients* const awaited_;
  std::vector<std::atomic<int>> missing_;  // By set: parameters without their gradient.
  std::vector<at::Tensor> watched_;
};

}  // namespace stagewright
