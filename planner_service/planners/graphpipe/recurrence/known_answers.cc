#include "planner_service/planners/graphpipe/recurrence/known_answers.h"

#include <algorithm>

namespace stagewright {

bool KnownAnswers::IsRefuted(double t, const PartitionLimits& limits) const {
  for (const Question& refuted : refuted_) {
    if (t <= refuted.t && limits.devices <= refuted.limits.devices &&
        limits.in_flight <= refuted.limits.in_flight) {
      return true;
    }
  }
  return std::any_of(easier_.begin(), easier_.end(),
                     [&](const KnownAnswers* easier) { return easier->IsRefuted(t, limits); });
}

std::optional<Partition> KnownAnswers::FromEasier(double t, const PartitionLimits& limits,
                                                  bool replicas) const {
  for (const KnownAnswers* easier : easier_) {
    for (const Found& found : easier->found_) {
      if (found.replicas == replicas && found.t == t && found.limits.devices == limits.devices &&
          found.limits.in_flight == limits.in_flight) {
        return found.partition;
      }
    }
  }
  return std::nullopt;
}

}  // namespace stagewright
