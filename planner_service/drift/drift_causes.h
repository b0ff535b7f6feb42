// Why the steps of a job take longer, or shorter, than predicted: for people.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/units.h"
#include "common/program/program.h"
#include "planner_service/drift/action_times.h"

namespace stagewright {

// Where times differ by more than this part of the prediction, they have drifted.
inline constexpr double kDrift = 0.1;

// "+44 %", "-12 %".
std::string PercentText(double ratio);

struct NamesOfJob {
  std::function<std::string(DeviceId)> device;  // "worker-b/cpu0"
  std::function<std::string(NodeId)> node;      // "linear_7"
};

// A line for each group of actions that is off by more than kDrift and by itself accounts for a
// fifth of the difference between the step times, at most four, the largest first:
//   stage 2 on worker-b/cpu0: backward pass 14.1 ms, predicted 9.8 ms (+44 %): linear_7, linear_9
//   link worker-a -> worker-b: 1.9 ms for 4 MiB, predicted 812 us (+134 %)
// The operators named are those that differ most, of those that workers timed and `expected` has
// for the stage and number of samples. One line says so if no group accounts for so much.
std::vector<std::string> CausesOf(const Program& program, Nanos predicted_step, Nanos measured_step,
                                  const std::vector<ActionTimes>& actions,
                                  const std::vector<TimedOperator>& expected,
                                  const std::vector<TimedOperator>& timed, const NamesOfJob& names);

}  // namespace stagewright
