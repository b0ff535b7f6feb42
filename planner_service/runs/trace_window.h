// Some steps of a run whose actions devices tell: complete when all devices have.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "common/program/trace.h"
#include "planner_service/drift/action_times.h"

namespace stagewright {

class TraceWindow {
 public:
  // What was told of the steps of a window.
  struct Told {
    int32_t steps = 0;  // Those that all devices told.
    int64_t last = 0;   // The newest of them, from 0.
    std::vector<TraceEvent> events;
    std::vector<TimedOperator> operators;
  };

  // For so many devices.
  explicit TraceWindow(size_t devices) : devices_(devices) {}

  // From now on `steps` steps from `first`, counted from 0, are waited for; what was told of others
  // is forgotten.
  void Ask(int64_t first, int32_t steps, absl::Time now);
  // Steps are being waited for.
  bool open() const { return end_ > first_; }
  // As many steps as are done when the last of them is.
  int64_t end() const { return end_; }
  absl::Time asked() const { return asked_; }

  // What a device tells of a step. True if all devices have now told of the last step that is
  // waited for: there is something to Take.
  bool Add(int32_t device, int64_t step, std::vector<TraceEvent> events,
           std::vector<TimedOperator> operators);
  // What all devices told; the window is closed.
  Told Take();

 private:
  struct Step {
    std::set<int32_t> devices;
    std::vector<TraceEvent> events;
  };

  size_t devices_;
  int64_t first_ = 0, end_ = 0;
  absl::Time asked_ = absl::InfinitePast();
  std::map<int64_t, Step> steps_;
  std::vector<TimedOperator> operators_;
};

}  // namespace stagewright
