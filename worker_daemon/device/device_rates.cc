#include "worker_daemon/device/device_rates.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "common/cost/cost_model.h"
#include "worker_daemon/device/efficiency_fit.h"
#include "worker_daemon/device/work_clock.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

constexpr int kRepeats = 5;
constexpr int kFewRepeats = 2;  // Where one takes tens of milliseconds.

// A training pass over pairs of tiny operators, each time after others that used the caches for
// their own tensors and code, as a pass in a step comes: after a product and a walk over memory.
// The least disturbed of several, on the host's clock, in seconds.
double PassOfTinyPairs(const at::Device& device, int pairs) {
  constexpr int kPasses = 15;
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
      for (int i = 0; i < pairs; ++i) value = at::linear(value, weight).tanh();
      value.sum().backward();
      return weight.grad();
    }));
  }
  return *std::min_element(seconds.begin(), seconds.end());
}

// What one small operator costs in training, per pass: dispatch, autograd's bookkeeping,
// allocation. On an accelerator that is what a launch takes the host, which does not wait for it:
// told from a longer pass, because the ends of a pass (autograd's thread wakes up, the host waits
// for the result) are no operator's, and take as long as a dozen of them.
double OperatorOverhead(const at::Device& device) {
  constexpr int kPairs = 5, kManyPairs = 25;
  // Two operators, forward and backward.
  if (device.is_cpu()) return PassOfTinyPairs(device, kManyPairs) / (4 * kManyPairs);
  const double few = PassOfTinyPairs(device, kPairs);
  // A product and a tanh forward; backward one of each, the weight's product and the sum of its
  // gradients.
  constexpr int kLaunches = 6;
  const double more = PassOfTinyPairs(device, kManyPairs) - few;
  return std::max(more, 0.0) / (kLaunches * (kManyPairs - kPairs));
}

double FlopsOfProduct(int64_t rows, int64_t in, int64_t out) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
}

// Numbers as in training: an accelerator runs faster, and cooler, on ones.
at::Tensor Normal(const at::Device& device, at::ScalarType type, int64_t rows, int64_t columns) {
  return at::randn({rows, columns}, at::TensorOptions().device(device).dtype(at::kFloat)).to(type);
}

// What a large product reaches in float32, in operations a second.
double ReachedInFloat32(KernelTimer& timer, double overhead) {
  const int64_t large = timer.device().is_cuda() ? 4096 : 512;
  const at::Tensor a = Normal(timer.device(), at::kFloat, large, large);
  const double seconds = timer.Fastest(kRepeats, [&] { return at::mm(a, a); });
  return FlopsOfProduct(large, large, large) / std::max(seconds - overhead, 1e-9);
}

// The same of products that round their operands to TF32; 0 where nothing does that.
double ReachedInTf32(KernelTimer& timer, double overhead) {
  if (!timer.device().is_cuda()) return 0;
  at::Context& context = at::globalContext();
  const bool allowed = context.allowTF32CuBLAS();
  context.setAllowTF32CuBLAS(true);
  double reached = 0;
  Guarded([&] { reached = ReachedInFloat32(timer, overhead); }).IgnoreError();
  context.setAllowTF32CuBLAS(allowed);
  return reached;
}

// A layer that maps rows of `in` numbers to rows of `out`.
struct LayerShape {
  int64_t rows, in, out;
  double flops() const { return FlopsOfProduct(rows, in, out); }
};

// Seconds of a product in the mean of a layer's three: forward, and for the gradients of its input
// and of its weight. Their operands lie differently in memory, which some libraries mind: on a
// processor without instructions for bfloat16, LibTorch's takes up to 13 times as long for one of
// them as for another.
double SecondsOfProduct(KernelTimer& timer, at::ScalarType type, const LayerShape& shape,
                        int repeats, double overhead) {
  const at::Device& device = timer.device();
  const at::Tensor x = Normal(device, type, shape.rows, shape.in);
  const at::Tensor w = Normal(device, type, shape.out, shape.in);
  const at::Tensor g = Normal(device, type, shape.rows, shape.out);
  const double all = timer.Fastest(repeats, [&] { return at::linear(x, w); }) +
                     timer.Fastest(repeats, [&] { return at::mm(g, w); }) +
                     timer.Fastest(repeats, [&] { return at::mm(g.t(), x); });
  return std::max(all / 3 - overhead, 1e-9);
}

// Layers to time products in 16 bits by, from small to large. On processors some take a
// thousandth of the rate of others, and so the largest is one that the slowest can do.
std::vector<LayerShape> LayersToTime(const at::Device& device) {
  if (device.is_cuda()) return {{256, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096}};
  return {{16, 64, 64}, {64, 256, 256}, {128, 512, 512}};
}

// Images of `channels` planes of `side` x `side` numbers, convolved into as many planes by filters
// of 3 x 3.
struct ConvolutionShape {
  int64_t images, channels, side;
  double flops() const { return FlopsOfProduct(images * side * side, 9 * channels, channels); }
};

// As SecondsOfProduct.
double SecondsOfConvolution(KernelTimer& timer, at::ScalarType type, const ConvolutionShape& shape,
                            int repeats, double overhead) {
  const auto planes = [&](int64_t count, int64_t side) {
    return Normal(timer.device(), type, count, shape.channels * side * side)
        .view({count, shape.channels, side, side});
  };
  const at::Tensor x = planes(shape.images, shape.side), g = planes(shape.images, shape.side);
  const at::Tensor w = planes(shape.channels, 3);
  const std::vector<int64_t> one = {1, 1}, none = {0, 0};
  const double all = timer.Fastest(repeats, [&] { return at::conv2d(x, w, {}, one, one); }) +
                     timer.Fastest(repeats, [&] {
                       return std::get<1>(at::convolution_backward(
                           g, x, w, at::OptionalIntArrayRef(), one, one, one, /*transposed=*/false,
                           none, /*groups=*/1, {true, true, false}));
                     });
  return std::max(all / 3 - overhead, 1e-9);
}

// From small to large, as LayersToTime.
std::vector<ConvolutionShape> ConvolutionsToTime(const at::Device& device) {
  if (device.is_cuda()) return {{8, 64, 28}, {32, 64, 56}, {32, 256, 28}};
  return {{8, 8, 16}, {8, 32, 16}, {16, 64, 14}};
}

// Times of `shapes`, from small to large; none where the device lacks the type.
template <typename Shape, typename Seconds>
std::vector<TimedWork> TimeAll(const at::Device& device, const std::vector<Shape>& shapes,
                               const Seconds& seconds) {
  std::vector<TimedWork> timed;
  const absl::Status measured = Guarded([&] {
    for (const Shape& shape : shapes) {
      const bool slow = device.is_cpu() && timed.size() + 1 == shapes.size();
      timed.push_back({shape.flops(), seconds(shape, slow ? kFewRepeats : kRepeats)});
    }
  });
  if (!measured.ok()) timed.clear();
  return timed;
}

// The peak rate of a type and its curve by what layers reach. Nothing where the device lacks it.
//
// float32's half_efficiency_flops says nothing of another type: it stands for the time that a
// product loses, which a type without instructions of its own, at a fiftieth of the rate, would be
// said to lose fifty times.
void MeasureType(KernelTimer& timer, ProductType product, at::ScalarType type, double overhead,
                 double DeviceKind::*peak, DeviceKind& kind) {
  std::vector<TimedWork> timed = TimeAll(
      timer.device(), LayersToTime(timer.device()), [&](const LayerShape& shape, int repeats) {
        return SecondsOfProduct(timer, type, shape, repeats, overhead);
      });
  if (timed.empty()) return;
  const double reached = timed.back().flops / timed.back().seconds;
  kind.*peak = reached / kPeakShare;
  kind.efficiency.push_back(CurveOf(std::move(timed), kind.*peak, reached));
  kind.efficiency.back().type = product;
}

// The curve of convolutions in a type whose peak is known: they have kernels of their own. On a
// processor that lacks instructions for a type they would take seconds.
void MeasureConvolutions(KernelTimer& timer, ProductType product, at::ScalarType type,
                         double overhead, DeviceKind& kind) {
  std::vector<TimedWork> timed =
      TimeAll(timer.device(), ConvolutionsToTime(timer.device()),
              [&](const ConvolutionShape& shape, int repeats) {
                return SecondsOfConvolution(timer, type, shape, repeats, overhead);
              });
  if (timed.empty()) return;
  const double peak = RateOf(kind, product);
  kind.efficiency.push_back(CurveOf(std::move(timed), peak, peak));
  kind.efficiency.back().operators = ProductKind::kConvolution;
  kind.efficiency.back().type = product;
}

// How many times longer products take whose rows begin anywhere, by a layer with an odd number of
// outputs: all three products read or write rows of as many.
double UnalignedSlowdown(KernelTimer& timer, at::ScalarType type) {
  if (!timer.device().is_cuda()) return 1;
  const LayerShape even = LayersToTime(timer.device()).back();
  const LayerShape odd = {even.rows, even.in, even.out + 1};
  double slower = 1;
  Guarded([&] {
    slower = SecondsOfProduct(timer, type, odd, kRepeats, 0) / odd.flops() /
             (SecondsOfProduct(timer, type, even, kRepeats, 0) / even.flops());
  }).IgnoreError();
  return std::max(slower, 1.0);
}

}  // namespace

DeviceKind MeasureDeviceRates(const std::string& torch_device, const std::string& name) {
  const at::NoGradGuard no_grad;
  const at::Device device(torch_device);
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  DeviceKind kind;
  kind.name = name;
  kind.adds_gradients = true;
  kind.asynchronous = !device.is_cpu();
  KernelTimer timer(device);

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
  const double overhead = device.is_cpu() ? on_host : 0;  // What the timer counts of it.

  const double reached = ReachedInFloat32(timer, overhead);
  kind.flops_per_second = reached / kPeakShare;
  kind.tf32_flops_per_second = ReachedInTf32(timer, overhead) / kPeakShare;
  MeasureType(timer, ProductType::kBFloat16, at::kBFloat16, overhead,
              &DeviceKind::bf16_flops_per_second, kind);
  MeasureType(timer, ProductType::kFloat16, at::kHalf, overhead, &DeviceKind::fp16_flops_per_second,
              kind);
  kind.unaligned_slowdown = UnalignedSlowdown(timer, at::kHalf);
  // Convolutions of float32 may use TF32 (analytic.cc).
  MeasureConvolutions(timer, ProductType::kTF32, at::kFloat, overhead, kind);
  if (device.is_cuda()) {
    MeasureConvolutions(timer, ProductType::kBFloat16, at::kBFloat16, overhead, kind);
    MeasureConvolutions(timer, ProductType::kFloat16, at::kHalf, overhead, kind);
  }
  // In float32, efficiency(w) = w / (w + half) fits the rate of the layers.
  const double layers_seconds = timer.Fastest(kRepeats, [&] {
    at::Tensor value = samples;
    for (const at::Tensor& weight : weights) value = at::mm(value, weight);
    return value;
  });
  const double layer_seconds =
      std::max(layers_seconds / static_cast<double>(layers) - overhead, 1e-9);
  kind.half_efficiency_flops =
      std::max(0.0, reached * layer_seconds - FlopsOfProduct(rows, width, width));

  const double wide_seconds = timer.Fastest(kRepeats, [&] { return wide.add(1.0); });
  kind.memory_bytes_per_second =
      2.0 * static_cast<double>(wide.nbytes()) / std::max(wide_seconds - overhead, 1e-9);
  return kind;
}

}  // namespace stagewright
