// Stragglers: devices that are slower than their like.
//
// Definitions, for a window of steps of one job. A device's busy time is what its passes and
// updates take in a step: for each group of alike actions their number times the median of what
// they took. Transfers and sums of gradients are left out, since they wait for others. Its ratio is
// busy time over the time predicted for the same actions, so that devices of several kinds, and
// shares of work of several sizes, compare.
//
// Its like are the other devices that run the same stages and are predicted to take as long for it,
// within kAlikePrediction: replicas on devices of its kind. Their operators are its own, so a wrong
// prediction is wrong for all of them. Where there are none, its like are all devices of the job.
// The device then takes, times as long as its like, its ratio over the median of theirs, the
// smaller of two in the middle: where the prediction is wrong for all alike, all have 1.
//
// It is slow from kSlowBesideReplicas times on, beside replicas, and otherwise from
// kSlowByPrediction times on: predictions of different operators are off by different factors, up
// to 1.7 apart in jobs of small operators where nothing is amiss. It is a straggler when it is slow
// in two windows in a row, and no longer when it exceeds 1 by less than kStillSlow of what made it
// slow. Devices that are predicted to be busy for less than kLeastBusyShare of the predicted step
// slow nobody down: they are never named, and nobody is held against them. (What a step is measured
// to take would not do: a straggler makes it longer.) A window that says nothing of a device leaves
// it what it was.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "planner_service/drift/action_times.h"

namespace stagewright {

inline constexpr double kAlikePrediction = 0.01;
inline constexpr double kSlowBesideReplicas = 1.25;
inline constexpr double kSlowByPrediction = 2;
inline constexpr double kStillSlow = 0.6;
inline constexpr double kLeastBusyShare = 0.05;
// A window of fewer steps says nothing.
inline constexpr int32_t kLeastWindowSteps = 3;

// A device in a window.
struct DevicePace {
  DeviceId device;
  StageId stage;       // The stage that takes it longest.
  Nanos busy = 0;      // In a step.
  Nanos expected = 0;  // The same at the pace of its like.
  double slow = 0;     // From so many times on it is slow.

  // How many times as long it takes as its like.
  double Times() const { return static_cast<double>(busy) / static_cast<double>(expected); }
};

// All devices that are busy for long enough, by id; none if there are fewer than two of them.
// `actions` as CompareTimes gives them. O(actions * log(devices) + devices^2).
std::vector<DevicePace> PacesOf(const std::vector<ActionTimes>& actions, Nanos predicted_step);

struct SlowDevice {
  DevicePace pace;         // In the newest window.
  int64_t since_step = 0;  // The first step, from 1, of the window in which it was slow first.
};

// What the windows of a run say so far.
struct Stragglers {
  std::map<DeviceId, SlowDevice> suspects;  // Slow in the newest window alone.
  std::map<DeviceId, SlowDevice> named;
};

// After one more window, which began with `first_step`, from 1. O(devices^2).
Stragglers After(const Stragglers& before, const std::vector<DevicePace>& paces,
                 int64_t first_step);

// "device w1/cpu0 takes 1.8 times as long as its like (steps 41 to 60): stage 2, busy for 14.1 ms
// of a step instead of 7.8 ms".
std::string StragglerText(const SlowDevice& straggler, const std::string& device,
                          int64_t last_step);

}  // namespace stagewright
