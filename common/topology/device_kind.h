// A kind of device: its peak rates and what of them operators reach, for the analytic cost model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"

namespace stagewright {

// In which type a product multiplies. Operands in TF32 are stored as float32.
enum class ProductType { kFloat32, kTF32, kBFloat16, kFloat16 };

// Operators whose work is products, each with kernels of its own.
enum class ProductKind { kMatmul, kConvolution, kAttention };

// Share of the peak that large kernels reach where a kind has no efficiency curves: what a measured
// rate is divided by to name a peak.
inline constexpr double kPeakShare = 0.6;

// An operator of so much work reaches this share of the peak rate of its type.
struct EfficiencyPoint {
  double flops = 0;  // Forward pass.
  double share = 0;  // In (0, 1].

  friend bool operator==(const EfficiencyPoint&, const EfficiencyPoint&) = default;
};

// What operators reach by their size. Between points the time is a straight line in the work;
// smaller operators reach the first share, larger ones the last.
struct EfficiencyCurve {
  std::optional<ProductKind> operators;  // Nothing: all for which no other curve is.
  std::optional<ProductType> type;       // The same. A curve for the operators goes before.
  std::vector<EfficiencyPoint> points;   // By ascending work, at least one.

  friend bool operator==(const EfficiencyCurve&, const EfficiencyCurve&) = default;
};

struct DeviceKind {
  std::string name;             // "v100-16g"
  double flops_per_second = 0;  // Dense products in float32, peak.
  double memory_bytes_per_second = 0;
  Nanos kernel_overhead = 0;  // Fixed cost of one operator launch.
  // Without efficiency curves: work (flops) at which a product reaches half of kPeakShare.
  double half_efficiency_flops = 0;
  // What running a program costs beyond its operators, on the thread that computes.
  Nanos pass_overhead = 0;              // A forward or backward pass of a stage, or a half of one.
  Nanos message_overhead = 0;           // A message, at each of its ends.
  double message_bytes_per_second = 0;  // What a message's bytes add to that; 0: nothing.
  Nanos step_overhead = 0;              // A stage's update in every step.
  Nanos parameter_overhead = 0;         // Each parameter of an update.
  // For what an update reads and writes: its tensors stay where they are, while operators write new
  // ones. 0: as memory.
  double update_bytes_per_second = 0;
  // What a hop of an all-reduce waits for a core because all devices of the machine compute.
  Nanos reduction_overhead = 0;
  // Each gradient is made, and added to others, in an operation of its own, as LibTorch does it
  // (backward_moves.h of common/cost). The V100 leaves it out: it stands for the papers' programs.
  bool adds_gradients = false;
  // Operators are launched onto a queue and computed while the host launches those that follow, as
  // accelerators do: kernel_overhead is the host's time, of which shows what kernels do not
  // outlast.
  bool asynchronous = false;
  // How many times slower than alone the device is by the figures above, which are those among
  // busy neighbours: with work in the caches, and with work that goes over memory.
  double product_slowdown = 1;
  double memory_slowdown = 1;
  // Peaks of dense products in other types; 0: the device lacks the type, and computes at
  // flops_per_second, after or instead of a conversion.
  double tf32_flops_per_second = 0;
  double bf16_flops_per_second = 0;
  double fp16_flops_per_second = 0;
  // How many times longer a matrix product in a type of 16 bits takes where rows of one of its
  // matrices do not begin at multiples of 16 bytes, as tensor cores' kernels want them.
  double unaligned_slowdown = 1;
  std::vector<EfficiencyCurve> efficiency;
};

// The kind with the costs of passes and messages on CPUs, in proportion to its kernel overhead,
// where it has none of its own: those of workers that have not measured them.
DeviceKind WithFixedCosts(DeviceKind kind);

// The kind among neighbours that slow its products, and every fixed cost, `product` times and its
// memory `memory` times.
DeviceKind WithSlowdown(DeviceKind kind, double product, double memory);

// The kind without the neighbours that its slowdowns tell of.
DeviceKind Alone(const DeviceKind& kind);

// What a message of so many bytes costs the computing thread, at each of its ends.
Nanos MessageCost(const DeviceKind& kind, Bytes bytes);

// Peak rate of products in a type; that of float32 where the device lacks it.
double RateOf(const DeviceKind& kind, ProductType type);

// What an update reads and writes in a second.
double UpdateRate(const DeviceKind& kind);

// Seconds of the forward pass of a product of so much work, without its launch: work over the rate
// times the share reached, by the curve for both its operators and its type, else for its
// operators, its type, or all; without any, (work + half_efficiency_flops) / (rate * kPeakShare).
// O(points).
double ProductSeconds(const DeviceKind& kind, ProductKind operators, ProductType type,
                      double flops);

// INVALID_ARGUMENT, naming the field after `where`: an empty name, rates that are not positive
// numbers (those of other types: or 0), negative costs, slowdowns below 1, and curves without
// points, twice for the same, not by ascending work, with shares outside (0, 1] or by which more
// work takes less time.
absl::Status CheckKind(const DeviceKind& kind, absl::string_view where);

}  // namespace stagewright
