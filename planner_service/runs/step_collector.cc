#include "planner_service/runs/step_collector.h"

#include <algorithm>
#include <utility>

namespace stagewright {

std::optional<double> EvaluationFigures::accuracy() const {
  if (predicted == 0) return std::nullopt;
  return static_cast<double>(correct) / static_cast<double>(predicted);
}

std::optional<StepShare> StepCollector::Add(int32_t device, const StepShare& share) {
  const StepFigures& figures = share.figures;
  const auto it = open_.try_emplace(figures.step).first;
  Open& open = it->second;
  if (!open.devices.insert(device).second) return std::nullopt;
  StepFigures& sum = open.sum.figures;
  sum.step = figures.step;
  sum.loss += figures.loss;
  sum.time = std::max(sum.time, figures.time);
  sum.learning_rate = std::max(sum.learning_rate, figures.learning_rate);
  sum.skipped = sum.skipped || figures.skipped;
  open.sum.loss_scale = std::max(open.sum.loss_scale, share.loss_scale);
  if (share.evaluation.has_value()) open.sum.evaluation = share.evaluation;
  if (open.devices.size() < devices_) {
    while (open_.size() > most_open_) {
      stride_ *= 2;
      std::erase_if(open_, [&](const auto& entry) { return (entry.first - 1) % stride_ != 0; });
    }
    return std::nullopt;
  }
  StepShare whole = std::move(open.sum);
  open_.erase(it);
  return whole;
}

}  // namespace stagewright
