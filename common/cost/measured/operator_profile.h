// What operators cost on a kind of device, as workers measured it.
//
// The file is JSON:
//   {"version": 1, "devices": [{"device_kind": "cpu", "software": "torch 2.13.0, 1 thread",
//     "operators": [{"signature": "aten.relu.default(...)", "measured_on": "2026-11-22",
//       "samples": [{"samples": 1, "forward_ns": 1200, "backward_ns": 900, "backward_input_ns":
//       900,
//                    "backward_weight_ns": 0, "kept_bytes": 0, "workspace_bytes": 0}]}]}]}
//
// with "job": "jobs/7" beside "measured_on" of what was measured in the steps of a job.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"

namespace stagewright {

// Operators are measured on so many samples at most.
inline constexpr int64_t kMostProfiledSamples = int64_t{1} << 20;

// An operator on one micro-batch of `samples` samples, as part of a pass with others: without the
// fixed costs of a pass.
struct OperatorMeasurement {
  int64_t samples = 1;
  Nanos forward = 0;
  Nanos backward = 0;        // input + weight; 0 without a backward pass.
  Nanos backward_input = 0;  // Where the halves share work, backward is shared out as they take.
  Nanos backward_weight = 0;
  // Allocated by the forward pass and still there when its results are gone: what the backward pass
  // needs beside the operands.
  Bytes kept = 0;
  // Most bytes at once beyond operands, results, what is kept and gradients.
  Bytes workspace = 0;
  friend bool operator==(const OperatorMeasurement&, const OperatorMeasurement&) = default;
};

struct MeasuredOperator {
  std::string measured_on;                   // "2026-11-22", UTC.
  std::vector<OperatorMeasurement> samples;  // By samples, each number once; at least one.
  // The job in whose steps it was measured: "jobs/7". Empty: by itself, as Merge prefers it.
  std::string job = {};
  friend bool operator==(const MeasuredOperator&, const MeasuredOperator&) = default;
};

// What measurements hold for.
struct ProfiledDevice {
  std::string kind;      // DeviceKind::name.
  std::string software;  // What runs the operators, with how many threads.
  friend auto operator<=>(const ProfiledDevice&, const ProfiledDevice&) = default;
};

using MeasuredOperators = std::map<std::string, MeasuredOperator>;  // By signature.

struct OperatorProfile {
  std::map<ProfiledDevice, MeasuredOperators> devices;

  bool empty() const { return devices.empty(); }
  friend bool operator==(const OperatorProfile&, const OperatorProfile&) = default;
};

// INVALID_ARGUMENT, naming field and operator: an empty name, a date that is none, no samples,
// numbers of samples that are not positive and ascending, times or sizes that are negative or
// beyond 11 days or an exbibyte, halves that do not add up.
absl::Status Check(const OperatorProfile& profile);

// `newer` replaces what is known of its operators, but what was measured in a job replaces nothing
// that was measured by itself: neighbours, caches and threads of a job's own make a difference.
void Merge(const OperatorProfile& newer, OperatorProfile& profile);

// Errors as Check's, and for unknown fields, other versions and what is given twice; each names
// `file_name`.
absl::StatusOr<OperatorProfile> ParseOperatorProfile(const std::string& json,
                                                     const std::string& file_name);
std::string OperatorProfileToJson(const OperatorProfile& profile);

}  // namespace stagewright
