// Where work lies in a job: samples of the mini-batch of one step.
#pragma once

#include <compare>
#include <cstdint>

#include "common/base/sample_range.h"

namespace stagewright {

struct StepSamples {
  int64_t step = 0;   // From 0.
  SampleRange range;  // Within the mini-batch of the step.
  friend auto operator<=>(const StepSamples&, const StepSamples&) = default;
};

// The samples of an action whose section belongs to `step`: in a section, samples from `mini_batch`
// on are those of the next step (program.h). REQUIRES: they are of one step.
inline StepSamples SamplesInStep(int64_t step, SampleRange samples, int64_t mini_batch) {
  const int64_t steps_ahead = samples.begin / mini_batch;
  const int64_t before = steps_ahead * mini_batch;
  return {step + steps_ahead, {samples.begin - before, samples.end - before}};
}

}  // namespace stagewright
