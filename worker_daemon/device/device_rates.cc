#include "worker_daemon/device/device_rates.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "common/cost/cost_model.h"

namespace stagewright {
namespace {

constexpr int kRepeats = 5;

// The shortest of several runs, in seconds: the one least disturbed.
double Fastest(const at::Device& device, const std::function<at::Tensor()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    at::Tensor result = work();
    if (device.is_cuda()) result.flatten().slice(0, 0, 1).cpu();  // Waits for the kernels.
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// What one small operator costs in training, per pass: dispatch, autograd's bookkeeping,
// allocation.
double OperatorOverhead(const at::Device& device) {
  constexpr int kOperators = 100;
  const c10::AutoGradMode grad(true);
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  const at::Tensor input = at::ones({8, 8}, options);
  at::Tensor weight = at::ones({8, 8}, options).set_requires_grad(true);
  const double seconds = Fastest(device, [&] {
    at::Tensor value = input;
    for (int i = 0; i < kOperators / 2; ++i) value = at::linear(value, weight).tanh();
    value.sum().backward();
    return weight.grad();
  });
  return seconds / (2 * kOperators);  // Forward and backward pass.
}

}  // namespace

DeviceKind MeasureDeviceRates(const std::string& torch_device, const std::string& name) {
  const at::NoGradGuard no_grad;
  const at::Device device(torch_device);
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  DeviceKind kind;
  kind.name = name;

  const int64_t large = device.is_cuda() ? 4096 : 512;
  const int64_t small = 64;
  const at::Tensor a = at::ones({large, large}, options);
  const at::Tensor b = at::ones({small, small}, options);
  const at::Tensor wide = at::ones({int64_t{1} << 22}, options);

  const double overhead = OperatorOverhead(device);
  kind.kernel_overhead = static_cast<Nanos>(overhead * 1e9);

  auto flops = [](int64_t n) {
    return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  };
  const double large_seconds = Fastest(device, [&] { return at::mm(a, a); });
  const double reached = flops(large) / std::max(large_seconds - overhead, 1e-9);
  kind.flops_per_second = reached / kPeakShare;
  // efficiency(w) = w / (w + half) fits the rate of the small product.
  const double small_seconds =
      std::max(Fastest(device, [&] { return at::mm(b, b); }) - overhead, 1e-9);
  kind.half_efficiency_flops = std::max(0.0, reached * small_seconds - flops(small));

  const double wide_seconds = Fastest(device, [&] { return wide.add(1.0); });
  kind.memory_bytes_per_second =
      2.0 * static_cast<double>(wide.nbytes()) / std::max(wide_seconds - overhead, 1e-9);
  return kind;
}

}  // namespace stagewright
