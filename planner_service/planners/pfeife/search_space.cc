#include "planner_service/planners/pfeife/search_space.h"

#include "planner_service/planners/pfeife/tuning.h"

namespace stagewright::pfeife {

SearchSpace::SearchSpace(const Problem& problem, SearchContext& context)
    : problem_(problem), context_(context), costs_(problem) {}

ChainModel& SearchSpace::ModelFor(const std::vector<int32_t>& order, int64_t samples,
                                  bool recompute) {
  std::unique_ptr<ChainModel>& model = models_[std::make_tuple(order, samples, recompute)];
  if (model == nullptr) {
    ModelRules rules;
    rules.recompute = recompute;
    model = std::make_unique<ChainModel>(costs_, order, samples, rules);
  }
  return *model;
}

SplitSearch SearchSpace::Beam(ChainModel& model, const std::vector<int32_t>& devices,
                              int32_t width) {
  BeamOptions options;
  options.width = width;
  options.memory = memory_;
  if (width <= Tuning::kNarrow) options.reach = Tuning::kNarrowReach;
  return SplitSearch(model, devices, options, context_, effort_);
}

}  // namespace stagewright::pfeife
