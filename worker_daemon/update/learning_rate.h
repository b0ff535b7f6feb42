// Learning rates that change from step to step: pure functions of the step, so that a run that is
// taken up again needs no state. No LibTorch here.
#pragma once

#include <cstdint>

#include "common/base/status.h"

namespace stagewright {

enum class Decay {
  kConstant,
  kLinear,  // As torch.optim.lr_scheduler.LinearLR with start_factor 1.
  kCosine,  // CosineAnnealingLR with eta_min = end_factor * learning rate.
  kStep,    // StepLR: times gamma every `every` steps.
};

// The first `warmup_steps` steps rise linearly to the full rate: step s has (s + 1) / warmup_steps
// of it. The decay counts its steps from the end of the warm-up.
struct LearningRateSchedule {
  Decay decay = Decay::kConstant;
  int64_t warmup_steps = 0;
  // Linear and cosine: the step, counted from the start of the job, at which the rate has come down
  // to end_factor of the full rate; it stays there. 0: the job's last one (see ForJob).
  int64_t decay_steps = 0;
  double end_factor = 0;
  // Steps.
  int64_t every = 1;
  double gamma = 0.1;
};

// What the learning rate is multiplied by at `step`, from 0. REQUIRES: CheckSchedule.
double LearningRateFactor(const LearningRateSchedule& schedule, int64_t step);

// The schedule with decay_steps set: to those of the job where it says nothing.
LearningRateSchedule ForJob(LearningRateSchedule schedule, int64_t steps);

// INVALID_ARGUMENT names the field: counts not negative, `every` and gamma positive, end_factor in
// [0, 1], the decay not over before the warm-up is.
absl::Status CheckSchedule(const LearningRateSchedule& schedule);

}  // namespace stagewright
