#include "worker_daemon/update/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"

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

absl::Status CheckSchedule(const LearningRateSchedule& schedule) {
  const auto bad = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer.schedule.", what...));
  };
  if (schedule.warmup_steps < 0)
    return bad("warmup_steps: ", schedule.warmup_steps, " is negative");
  if (schedule.decay == Decay::kStep) {
    if (schedule.every < 1) return bad("every: ", schedule.every, " is not positive");
    if (!(schedule.gamma > 0) || !std::isfinite(schedule.gamma))
      return bad("gamma: ", schedule.gamma, " is not positive and finite");
  }
  if (schedule.decay != Decay::kLinear && schedule.decay != Decay::kCosine) return absl::OkStatus();
  if (schedule.decay_steps < 0 ||
      (schedule.decay_steps > 0 && schedule.decay_steps < schedule.warmup_steps)) {
    return bad("decay_steps: ", schedule.decay_steps, " is less than the ", schedule.warmup_steps,
               " steps of the warm-up");
  }
  if (!(schedule.end_factor >= 0 && schedule.end_factor <= 1))
    return bad("end_factor: ", schedule.end_factor, " is not in [0, 1]");
  return absl::OkStatus();
}

}  // namespace stagewright
