#include "common/training/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/training/field_check.h"

namespace stagewright {

double LearningRateFactor(const LearningRateSchedule& schedule, int64_t step) {
  if (step < schedule.warmup_steps) {
    return static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  const int64_t since = step - schedule.warmup_steps;
  const int64_t length = schedule.decay_steps - schedule.warmup_steps;
  const double part =
      since >= length ? 1 : static_cast<double>(since) / static_cast<double>(length);
  switch (schedule.decay) {
    case Decay::kConstant:
      return 1;
    case Decay::kLinear:
      return 1 + (schedule.end_factor - 1) * part;
    case Decay::kCosine:
      return schedule.end_factor +
             (1 - schedule.end_factor) * (1 + std::cos(std::numbers::pi * part)) / 2;
    case Decay::kStep:
      return std::pow(schedule.gamma, static_cast<double>(since / schedule.every));
  }
  return 1;
}

LearningRateSchedule ForJob(LearningRateSchedule schedule, int64_t steps) {
  if (schedule.decay_steps == 0) schedule.decay_steps = std::max(steps, schedule.warmup_steps);
  return schedule;
}

absl::Status Check(const LearningRateSchedule& schedule, absl::string_view of) {
  const std::string field = "optimizer.schedule.";
  RETURN_IF_ERROR(CheckNotNegative(of, field + "warmup_steps", schedule.warmup_steps));
  if (schedule.decay == Decay::kStep) {
    if (schedule.every < 1)
      return WrongField(of, field + "every", "must be positive, is ", schedule.every);
    return CheckPositive(of, field + "gamma", schedule.gamma);
  }
  if (schedule.decay == Decay::kConstant) return absl::OkStatus();
  if (schedule.decay_steps < 0 ||
      (schedule.decay_steps > 0 && schedule.decay_steps < schedule.warmup_steps)) {
    return WrongField(of, field + "decay_steps", "must be 0 or not less than the ",
                      schedule.warmup_steps, " of warmup_steps, is ", schedule.decay_steps);
  }
  if (!(schedule.end_factor >= 0 && schedule.end_factor <= 1))
    return WrongField(of, field + "end_factor", "must lie in [0, 1], is ", schedule.end_factor);
  return absl::OkStatus();
}

}  // namespace stagewright
