// Which gradients are summed across devices, and from when on.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "common/topology/cluster.h"
#include "common/training/optimizer_sharding.h"

namespace stagewright {

// How the gradients of one stage are cut (gradient_buckets.h).
struct BucketRule {
  // So many bytes or a little more each; 0: what is best on `cluster` by the times of `costs`.
  Bytes bytes = 0;
  const CostModel* costs = nullptr;
  const Cluster* cluster = nullptr;  // Null: with `bytes` 0, one sum after the last backward pass.
  std::vector<bool> split = {};      // By stage: backward passes come in halves. Empty: none.
  // How replicas share out what their stage alone holds (Reduction::sharded and each_pass).
  OptimizerSharding sharding = OptimizerSharding::kNone;
};

// A sum, and the mark of the last backward pass of its stage that it waits for; with each_pass, of
// every one.
struct PlannedReduction {
  static constexpr int32_t kEnd = -1;  // It waits for the end of that of each of its stages.
  Reduction reduction;
  int32_t mark = kEnd;
  // The last bucket of a stage that takes longer than one more optimizer step costs: what is summed
  // before it is updated meanwhile.
  bool update_before = false;
  // What each of its devices holds besides while it sums (gradient_parts.h).
  Bytes copy = 0;
};

// Trainable parameters grouped by the exact set of stages that hold them, where these run on two or
// more devices: a stage's gradients are summed while other stages of its devices still compute. The
// order is that in which groups become complete: those whose earliest stage is last come first,
// since backward passes end there first; so every device meets its all-reduces in one common order.
// Planning-only nodes of a replicated stage add their parameter bytes without naming parameters.
// Parameters of one stage alone come in buckets, in the order in which its backward pass completes
// them, and may be shared out. O(nodes), and for each parameter O(d log d) for the d devices of the
// stages that hold it.
std::vector<PlannedReduction> MakeReductions(const Graph& graph,
                                             const std::vector<ProgramStage>& stages,
                                             const BucketRule& rule);

// The sum of the gradients' squared norm: one double over all devices of the stages.
Reduction MakeNormReduction(const std::vector<ProgramStage>& stages);

}  // namespace stagewright
