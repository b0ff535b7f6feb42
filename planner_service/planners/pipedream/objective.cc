#include "planner_service/planners/pipedream/objective.h"

#include <algorithm>

namespace stagewright::pipedream {
namespace {

// Output of the layers of `before` that the others read.
double Boundary(const LayerProfile& profile, const std::vector<bool>& before) {
  double bytes = 0;
  for (int32_t v = 0; v < profile.size(); ++v) {
    const auto successors = profile.dag.Successors(v);
    if (before[v] &&
        std::any_of(successors.begin(), successors.end(), [&](int32_t w) { return !before[w]; })) {
      bytes += profile.output[v];
    }
  }
  return bytes;
}

// `done`: the layers of all earlier stages; `last`: this pipeline ends the model.
double ObjectiveOf(const LayerProfile& profile, const Rules& rules,
                   const std::vector<Level>& levels, size_t depth,
                   const std::vector<PlannedStage>& stages, std::vector<bool> done) {
  const Level& level = levels[depth];
  const bool ends = [&] {
    size_t layers = std::count(done.begin(), done.end(), true);
    for (const PlannedStage& stage : stages) layers += stage.layers.size();
    return layers == done.size();
  }();
  double links = 1;
  for (size_t inner = 0; inner < depth; ++inner) links = levels[inner].machines;
  double worst = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const PlannedStage& stage = stages[s];
    if (s > 0) {
      worst = std::max(
          worst, TransferSeconds(rules, Boundary(profile, done), stage.replicas, level.bandwidth));
    }
    double compute = 0;
    double parameters = 0;
    for (int32_t v : stage.layers) {
      compute += profile.seconds[v];
      parameters += profile.parameters[v];
    }
    if (depth > 0) {
      compute = ObjectiveOf(profile, rules, levels, depth - 1, stage.inner, done);
    }
    const bool all_links = s == 0 && rules.first_stage_has_all_links;
    worst = std::max(worst, StageSeconds(rules, compute, parameters, stage.replicas,
                                         level.bandwidth, all_links ? links : 1));
    for (int32_t v : stage.layers) done[v] = true;
    const bool last = s + 1 == stages.size();
    if (rules.divided_transfers && s > 0 && !(last && ends)) {
      worst = std::max(
          worst, TransferSeconds(rules, Boundary(profile, done), stage.replicas, level.bandwidth));
    }
  }
  return worst;
}

}  // namespace

double StageSeconds(const Rules& rules, double compute, double parameters, int32_t replicas,
                    double bandwidth, double links) {
  const double m = replicas;
  const double sync = rules.syncs * 4 * (m - 1) * parameters / (m * bandwidth) / links;
  return (rules.overlapped_sync ? std::max(compute, sync) : compute + sync) / m;
}

double TransferSeconds(const Rules& rules, double bytes, int32_t replicas, double bandwidth) {
  return 2 * bytes / (rules.divided_transfers ? bandwidth * replicas : bandwidth);
}

int64_t Noam(int32_t machines_to_the_end, int32_t replicas) {
  return (machines_to_the_end + replicas - 1) / replicas;
}

double Objective(const LayerProfile& profile, const Rules& rules, const std::vector<Level>& levels,
                 const std::vector<PlannedStage>& stages) {
  return ObjectiveOf(profile, rules, levels, levels.size() - 1, stages,
                     std::vector<bool>(profile.size(), false));
}

}  // namespace stagewright::pipedream
