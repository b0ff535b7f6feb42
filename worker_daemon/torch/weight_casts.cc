#include "worker_daemon/torch/weight_casts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <limits>

#include "common/training/autocast.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright {

bool WeightCasts::Applies(const std::string& target) const {
  return IsMixed(precision_) && TakesSmallerType(target);
}

const at::Tensor& WeightCasts::Get(ParameterId id, const at::Tensor& weight) {
  if (weight.scalar_type() != at::kFloat) return weight;
  Cast& cast = casts_[id];
  if (!cast.weight.is_same(weight) || cast.version != static_cast<int64_t>(weight._version())) {
    // With its history, which a forward pass that keeps no graph does not need and others do. The
    // history holds no tensor, so that backward passes may go through it any number of times.
    const at::AutoGradMode grad_mode(true);
    cast.weight = weight;
    cast.version = static_cast<int64_t>(weight._version());
    cast.copy = at::Tensor();  // So that there is never more than one.
    cast.copy = weight.to(ToScalarType(SmallerType(precision_)));
    // Backward passes run nodes that were made last first. A cast is older than all of a later
    // micro-batch, and would come after all of them; its gradient is awaited as soon as it is
    // there.
    if (cast.copy.grad_fn())
      cast.copy.grad_fn()->set_sequence_nr(std::numeric_limits<uint64_t>::max());
  }
  return cast.copy;
}

}  // namespace stagewright
