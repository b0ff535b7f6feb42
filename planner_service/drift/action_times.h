// What the actions of a step take, as predicted and as measured.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/program/program.h"
#include "common/program/trace.h"

namespace stagewright {

// Actions of a step that are alike. Transfers are told as their send; a gradient sum is that of all
// its members, without a device and with the first stage of its reduction.
struct ActionGroup {
  ActionKind kind = ActionKind::kForward;
  StageId stage;
  DeviceId device;
  int64_t samples = 0;
  int32_t channel = -1;  // As in Action.
  friend auto operator<=>(const ActionGroup&, const ActionGroup&) = default;
};

struct ActionTimes {
  ActionGroup group;
  int64_t count = 0;  // In a step.
  Bytes bytes = 0;    // The message's, or the gradients' that are summed; else 0.
  Nanos predicted = 0;
  Nanos measured = 0;

  // How much longer they take together than predicted.
  Nanos Excess() const { return (measured - predicted) * count; }
};

// An operator in passes over so many samples on one device: means.
struct TimedOperator {
  DeviceId device;
  StageId stage;
  NodeId node;
  int64_t samples = 0;
  Nanos forward = 0;
  Nanos backward = 0;
};

// Whether events of two devices are told by one clock.
using SameClock = std::function<bool(DeviceId, DeviceId)>;

// The median over each group's actions in all steps of a trace. A transfer lasts from the moment
// that both ends were ready to the end of its receive; where the ends have clocks of their own, as
// long as at the end that was ready last, which is the shorter (and too short for messages that
// their sender need not wait for). A gradient sum lasts from the last start to the last end.
// O(n log n).
std::map<ActionGroup, Nanos> TypicalTimes(const Program& program,
                                          const std::vector<TraceEvent>& trace,
                                          const SameClock& same_clock);

// The actions that both timelines have, those with the largest excess, of either sign, first.
// REQUIRES: the program is synchronous.
std::vector<ActionTimes> CompareTimes(const Program& program,
                                      const std::vector<TraceEvent>& predicted,
                                      const std::vector<TraceEvent>& measured,
                                      const SameClock& same_clock);

}  // namespace stagewright
