#include "worker_daemon/device/device_rates.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "common/cost/cost_model.h"
#include "worker_daemon/device/work_clock.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

constexpr int kRepeats = 5;
constexpr int kFewRepeats = 2;  // The first warms up.

// The shortest of several runs on the host's clock, in seconds: the one least disturbed.
double FastestOnHost(const at::Device& device, int repeats,
                     const std::function<at::Tensor()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const double start = WorkClock(device);
    at::Tensor result = work();
    if (device.is_cuda()) result.flatten().slice(0, 0, 1).cpu();  // Waits for the kernels.
    best = std::min(best, WorkClock(device) - start);
  }
  return best;
}

// The shortest of several runs on the device: an accelerator times its kernels itself, without how
// long it took to start them.
double Fastest(const at::Device& device, int repeats, const std::function<at::Tensor()>& work) {
  if (device.is_cpu()) return FastestOnHost(device, repeats, work);
  const c10::impl::VirtualGuardImpl guard(device.type());
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    // BACKEND_DEFAULT: events that know the time.
    c10::Event start(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    start.record(guard.getStream(device));
    const at::Tensor result = work();
    end.record(guard.getStream(device));
    end.synchronize();
    best = std::min(best, start.elapsedTime(end) / 1e3);
  }
  return best;
}

// What one small operator costs in training, per pass: dispatch, autograd's bookkeeping,
// allocation. A pass comes after others that used the caches for their own tensors and code, so
// that it is timed after a product and a walk over memory, and the least disturbed of several
// counts.
double OperatorOverhead(const at::Device& device) {
  constexpr int kOperators = 10, kPasses = 15;
  const c10::AutoGradMode grad(true);
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  const at::Tensor input = at::ones({8, 8}, options);
  const at::Tensor weight = at::ones({8, 8}, options).set_requires_grad(true);
  const at::Tensor others = at::ones({512, 2048}, options);
  std::vector<double> seconds;
  for (int pass = 0; pass < kPasses; ++pass) {
    FastestOnHost(device, 1, [&] { return at::mm(others, others.t()); });
    seconds.push_back(FastestOnHost(device, 1, [&] {
      at::Tensor value = input;
      for (int i = 0; i < kOperators / 2; ++i) value = at::linear(value, weight).tanh();
      value.sum().backward();
      return weight.grad();
    }));
  }
  const double least = *std::min_element(seconds.begin(), seconds.end());
  return least / (2 * kOperators);  // Forward and backward pass.
}

double FlopsOfProduct(int64_t rows, int64_t width) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(width) * static_cast<double>(width);
}

// What a large product in a type reaches, in operations a second; 0 where the device has none.
double ReachedIn(at::ScalarType type, const at::Device& device, int repeats, double overhead) {
  const int64_t large = device.is_cuda() ? 4096 : 512;
  double reached = 0;
  Guarded([&] {
    // Numbers as in training: an accelerator runs faster, and cooler, on ones.
    const at::Tensor a =
        at::randn({large, large}, at::TensorOptions().device(device).dtype(at::kFloat)).to(type);
    const double seconds = Fastest(device, repeats, [&] { return at::mm(a, a); });
    reached = FlopsOfProduct(large, large) / std::max(seconds - overhead, 1e-9);
  }).IgnoreError();
  return reached;
}

// The same of float32 products that round their operands to TF32; 0 where nothing does that.
double ReachedInTf32(const at::Device& device, int repeats, double overhead) {
  if (!device.is_cuda()) return 0;
  at::Context& context = at::globalContext();
  const bool allowed = context.allowTF32CuBLAS();
  context.setAllowTF32CuBLAS(true);
  const double reached = ReachedIn(at::kFloat, device, repeats, overhead);
  context.setAllowTF32CuBLAS(allowed);
  return reached;
}

}  // namespace

DeviceKind MeasureDeviceRates(const std::string& torch_device, const std::string& name) {
  const at::NoGradGuard no_grad;
  const at::Device device(torch_device);
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  DeviceKind kind;
  kind.name = name;
  kind.adds_gradients = true;

  // The product of a layer with a few samples. As in training, each layer's weight was last used
  // longer ago than the caches of a core remember.
  const int64_t rows = 64, width = 256, layers = 32;
  const at::Tensor samples = at::randn({rows, width}, options);
  const std::vector<at::Tensor> weights = at::randn({layers, width, width}, options)
                                              .div_(std::sqrt(static_cast<double>(width)))
                                              .unbind();
  // Beyond all caches: those of accelerators have up to a hundred megabytes.
  const at::Tensor wide = at::randn({int64_t{1} << (device.is_cpu() ? 22 : 26)}, options);

  const double on_host = OperatorOverhead(device);
  kind.kernel_overhead = static_cast<Nanos>(on_host * 1e9);
  const double overhead = device.is_cpu() ? on_host : 0;  // What Fastest counts of it.

  const double reached = ReachedIn(at::kFloat, device, kRepeats, overhead);
  kind.flops_per_second = reached / kPeakShare;
  kind.tf32_flops_per_second = ReachedInTf32(device, kRepeats, overhead) / kPeakShare;
  // Processors may have a type in name only, and take a tenth of a second for one product in it.
  kind.bf16_flops_per_second = ReachedIn(at::kBFloat16, device, kFewRepeats, overhead) / kPeakShare;
  kind.fp16_flops_per_second = ReachedIn(at::kHalf, device, kFewRepeats, overhead) / kPeakShare;
  // efficiency(w) = w / (w + half) fits the rate of the layers.
  const double layers_seconds = Fastest(device, kRepeats, [&] {
    at::Tensor value = samples;
    for (const at::Tensor& weight : weights) value = at::mm(value, weight);
    return value;
  });
  const double layer_seconds =
      std::max(layers_seconds / static_cast<double>(layers) - overhead, 1e-9);
  kind.half_efficiency_flops = std::max(0.0, reached * layer_seconds - FlopsOfProduct(rows, width));

  const double wide_seconds = Fastest(device, kRepeats, [&] { return wide.add(1.0); });
  kind.memory_bytes_per_second =
      2.0 * static_cast<double>(wide.nbytes()) / std::max(wide_seconds - overhead, 1e-9);
  return kind;
}

}  // namespace stagewright
