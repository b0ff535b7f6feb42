#include "worker_daemon/device/work_units.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

namespace stagewright {
namespace {

at::Tensor Ones(const std::string& torch_device, at::IntArrayRef shape) {
  at::init_num_threads();  // OpenMP keeps the number per thread; new ones must be told.
  return at::ones(shape, at::TensorOptions().device(at::Device(torch_device)).dtype(at::kFloat));
}

}  // namespace

std::function<void()> MakeProductUnit(const std::string& torch_device) {
  return [a = Ones(torch_device, {256, 256})] {
    const at::NoGradGuard no_grad;
    at::mm(a, a);
  };
}

std::function<void()> MakeCopyUnit(const std::string& torch_device) {
  return [from = Ones(torch_device, {int64_t{1} << 21}),
          to = Ones(torch_device, {int64_t{1} << 21})]() mutable {
    const at::NoGradGuard no_grad;
    to.copy_(from);
  };
}

}  // namespace stagewright
