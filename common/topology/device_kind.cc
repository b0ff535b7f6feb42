#include "common/topology/device_kind.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr Nanos kLongestCost = 3600 * kSecond;
constexpr double kLargestSlowdown = 1e4;

// What the engine costs on a CPU beyond operators, in calls of small ones, so that it holds on
// faster and slower cores. From the table "Engine" of docs/benchmarks.md (release build, idle
// machine), for calls of 8 us: a pass of one or two tiny operators took 6.9 us, of which about 4
// are not theirs; two passes and two packed messages took 38 us, so that a message took 12 us at
// each end. Workers measure passes themselves, and messages where several devices share a machine.
constexpr double kCallsOfPass = 0.5;
constexpr double kCallsOfMessage = 1.5;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckRates(const DeviceKind& kind, absl::string_view where) {
  const auto check = [&](double value, bool or_none, absl::string_view field) {
    if (std::isfinite(value) && (value > 0 || (or_none && value == 0))) return absl::OkStatus();
    return Invalid(where, ".", field, ": ", value, " is not a positive number",
                   or_none ? " or 0" : "");
  };
  RETURN_IF_ERROR(check(kind.flops_per_second, false, "flops_per_second"));
  RETURN_IF_ERROR(check(kind.memory_bytes_per_second, false, "memory_bytes_per_second"));
  RETURN_IF_ERROR(check(kind.update_bytes_per_second, true, "update_bytes_per_second"));
  RETURN_IF_ERROR(check(kind.tf32_flops_per_second, true, "tf32_flops_per_second"));
  RETURN_IF_ERROR(check(kind.bf16_flops_per_second, true, "bf16_flops_per_second"));
  RETURN_IF_ERROR(check(kind.fp16_flops_per_second, true, "fp16_flops_per_second"));
  RETURN_IF_ERROR(check(kind.message_bytes_per_second, true, "message_bytes_per_second"));
  for (const auto& [slowdown, field] : {std::pair(kind.product_slowdown, "product_slowdown"),
                                        std::pair(kind.memory_slowdown, "memory_slowdown"),
                                        std::pair(kind.unaligned_slowdown, "unaligned_slowdown")}) {
    if (!(slowdown >= 1 && slowdown <= kLargestSlowdown))
      return Invalid(where, ".", field, ": ", slowdown, " is not from 1 to ", kLargestSlowdown);
  }
  return absl::OkStatus();
}

absl::Status CheckCosts(const DeviceKind& kind, absl::string_view where) {
  const auto check = [&](Nanos value, absl::string_view field) {
    if (value >= 0 && value <= kLongestCost) return absl::OkStatus();
    return Invalid(where, ".", field, ": ", value, " ns is negative or over an hour");
  };
  RETURN_IF_ERROR(check(kind.kernel_overhead, "kernel_overhead_ns"));
  RETURN_IF_ERROR(check(kind.pass_overhead, "pass_overhead_ns"));
  RETURN_IF_ERROR(check(kind.message_overhead, "message_overhead_ns"));
  RETURN_IF_ERROR(check(kind.step_overhead, "step_overhead_ns"));
  RETURN_IF_ERROR(check(kind.parameter_overhead, "parameter_overhead_ns"));
  RETURN_IF_ERROR(check(kind.reduction_overhead, "reduction_overhead_ns"));
  if (!std::isfinite(kind.half_efficiency_flops) || kind.half_efficiency_flops < 0) {
    return Invalid(where, ".half_efficiency_flops: ", kind.half_efficiency_flops,
                   " is negative or not a number");
  }
  return absl::OkStatus();
}

absl::Status CheckCurve(const EfficiencyCurve& curve, absl::string_view where) {
  if (curve.points.empty()) return Invalid(where, ".points is empty");
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const EfficiencyPoint& point = curve.points[i];
    const std::string at = absl::StrCat(where, ".points[", i, "]");
    if (!std::isfinite(point.flops) || point.flops <= 0)
      return Invalid(at, ".flops: ", point.flops, " is not a positive number");
    if (!(point.share > 0 && point.share <= 1))
      return Invalid(at, ".share: ", point.share, " is not above 0 and at most 1");
    if (i == 0) continue;
    const EfficiencyPoint& before = curve.points[i - 1];
    if (point.flops <= before.flops)
      return Invalid(at, ".flops: ", point.flops, " is not above that of the point before");
    if (point.flops / point.share < before.flops / before.share) {
      return Invalid(at, ".share: ", point.share,
                     " makes an operator faster than one of less work, of the point before");
    }
  }
  return absl::OkStatus();
}

const EfficiencyCurve* CurveFor(const DeviceKind& kind, ProductKind operators, ProductType type) {
  const EfficiencyCurve* best = nullptr;
  int closest = -1;
  for (const EfficiencyCurve& curve : kind.efficiency) {
    if (curve.operators.value_or(operators) != operators || curve.type.value_or(type) != type)
      continue;
    const int close = (curve.operators.has_value() ? 2 : 0) + (curve.type.has_value() ? 1 : 0);
    if (close > closest) best = &curve;
    closest = std::max(closest, close);
  }
  return best;
}

// Work over the share reached.
double WorkAtPeak(const std::vector<EfficiencyPoint>& points, double flops) {
  const auto next = std::find_if(points.begin(), points.end(), [&](const EfficiencyPoint& point) {
    return point.flops >= flops;
  });
  if (next == points.begin()) return flops / points.front().share;
  if (next == points.end()) return flops / points.back().share;
  const EfficiencyPoint& before = *(next - 1);
  const double from = before.flops / before.share;
  const double to = next->flops / next->share;
  return from + (to - from) * (flops - before.flops) / (next->flops - before.flops);
}

}  // namespace

DeviceKind WithFixedCosts(DeviceKind kind) {
  const auto call = static_cast<double>(kind.kernel_overhead);
  if (kind.pass_overhead == 0) kind.pass_overhead = Nanos(std::llround(kCallsOfPass * call));
  if (kind.message_overhead == 0)
    kind.message_overhead = Nanos(std::llround(kCallsOfMessage * call));
  return kind;
}

DeviceKind WithSlowdown(DeviceKind kind, double product, double memory) {
  for (double* rate : {&kind.flops_per_second, &kind.tf32_flops_per_second,
                       &kind.bf16_flops_per_second, &kind.fp16_flops_per_second})
    *rate /= product;
  for (double* rate : {&kind.memory_bytes_per_second, &kind.update_bytes_per_second,
                       &kind.message_bytes_per_second})
    *rate /= memory;
  for (Nanos* cost : {&kind.kernel_overhead, &kind.pass_overhead, &kind.message_overhead,
                      &kind.step_overhead, &kind.parameter_overhead})
    *cost = Nanos(static_cast<double>(*cost) * product);
  kind.product_slowdown *= product;
  kind.memory_slowdown *= memory;
  return kind;
}

DeviceKind Alone(const DeviceKind& kind) {
  return WithSlowdown(kind, 1 / kind.product_slowdown, 1 / kind.memory_slowdown);
}

Nanos MessageCost(const DeviceKind& kind, Bytes bytes) {
  if (kind.message_bytes_per_second <= 0) return kind.message_overhead;
  const double seconds =
      std::min(3600.0, static_cast<double>(bytes) / kind.message_bytes_per_second);
  return kind.message_overhead + Nanos(std::llround(seconds * 1e9));
}

double RateOf(const DeviceKind& kind, ProductType type) {
  double rate = 0;
  if (type == ProductType::kTF32) rate = kind.tf32_flops_per_second;
  if (type == ProductType::kBFloat16) rate = kind.bf16_flops_per_second;
  if (type == ProductType::kFloat16) rate = kind.fp16_flops_per_second;
  return rate > 0 ? rate : kind.flops_per_second;
}

double UpdateRate(const DeviceKind& kind) {
  return kind.update_bytes_per_second > 0 ? kind.update_bytes_per_second
                                          : kind.memory_bytes_per_second;
}

double ProductSeconds(const DeviceKind& kind, ProductKind operators, ProductType type,
                      double flops) {
  const double rate = RateOf(kind, type);
  const EfficiencyCurve* curve = CurveFor(kind, operators, type);
  if (curve == nullptr) return (flops + kind.half_efficiency_flops) / (rate * kPeakShare);
  return WorkAtPeak(curve->points, flops) / rate;
}

absl::Status CheckKind(const DeviceKind& kind, absl::string_view where) {
  if (kind.name.empty()) return Invalid(where, ".name is empty");
  RETURN_IF_ERROR(CheckRates(kind, where));
  RETURN_IF_ERROR(CheckCosts(kind, where));
  for (size_t i = 0; i < kind.efficiency.size(); ++i) {
    const EfficiencyCurve& curve = kind.efficiency[i];
    const std::string at = absl::StrCat(where, ".efficiency[", i, "]");
    RETURN_IF_ERROR(CheckCurve(curve, at));
    for (size_t other = 0; other < i; ++other) {
      if (kind.efficiency[other].operators == curve.operators &&
          kind.efficiency[other].type == curve.type)
        return Invalid(at, " is for the same operators and type as efficiency[", other, "]");
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
