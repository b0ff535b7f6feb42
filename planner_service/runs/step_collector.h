// Steps of a run as its devices report them: a step is whole when all have.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "common/base/units.h"

namespace stagewright {

// What one device saw of a step, or all of them together.
struct StepFigures {
  int64_t step = 0;  // Steps done, from 1.
  double loss = 0;   // Shares of the devices add up.
  double learning_rate = 0;
  Nanos time = 0;  // The slowest device's.
  bool skipped = false;
};

// Figures of the whole job, equal on all devices that tell them.
struct EvaluationFigures {
  double loss = 0;
  int64_t predicted = 0;  // Samples whose class was predicted; 0 if the graph does not classify.
  int64_t correct = 0;

  std::optional<double> accuracy() const;
};

struct StepShare {
  StepFigures figures;
  double loss_scale = 0;
  std::optional<EvaluationFigures> evaluation;  // The evaluation that followed the step.
};

class StepCollector {
 public:
  // For so many devices. When more than `most_open` steps wait for devices that have not reported
  // them yet, every second is given up.
  StepCollector(size_t devices, size_t most_open) : devices_(devices), most_open_(most_open) {}

  // The step of all devices together if this was the last of them; what a device says again is of
  // no concern.
  std::optional<StepShare> Add(int32_t device, const StepShare& share);

  // Every so many steps, from the first on, one is whole for certain once all devices reported it.
  int64_t stride() const { return stride_; }

 private:
  struct Open {
    std::set<int32_t> devices;  // Those that have reported the step.
    StepShare sum;
  };

  size_t devices_;
  size_t most_open_;
  int64_t stride_ = 1;
  std::map<int64_t, Open> open_;
};

}  // namespace stagewright
