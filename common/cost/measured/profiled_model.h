// Costs of operators as workers measured them.
#pragma once

#include <memory>
#include <span>

#include "common/cost/cost_model.h"
#include "common/cost/measured/operator_profile.h"
#include "common/graph/graph.h"
#include "common/topology/cluster.h"

namespace stagewright {

// Times on devices of `kinds`, by name, from the profile's measurements of operators with the same
// signature: exact at the measured sizes where times do not fall, in between and beyond as
// MonotoneCurve says. Of several softwares that a kind was measured with, the last measured counts.
//
// Measurements are those of a device alone. Where the kind has busy neighbours
// (DeviceKind::product_slowdown), an operator is as many times slower as `analytic` says, which
// knows whether it goes over memory.
//
// An operator that was not measured takes as long as `analytic` says, times the median of measured
// over analytic time of the measured operators of its AtenKind, or of all where none is of it: a
// roofline errs alike for operators alike (a library that reaches a third of the peak in one
// product does so in the next), and a stage's costs must not mix two scales. Planning-only nodes
// and kinds that were not measured are `analytic`'s as they are.
//
// Bytes are those of `analytic`, which knows by whom a tensor is kept that several operators need,
// plus what measured operators keep or take beyond what it knows of, on the kind where that is
// most.
//
// Passes compute in the precision of `analytic`. Description() says how many operators are covered,
// and when they were measured. The graph outlives the model. O(nodes * kinds) to make.
std::unique_ptr<CostModel> MakeProfiledCostModel(const Graph& graph,
                                                 std::span<const DeviceKind> kinds,
                                                 const OperatorProfile& profile,
                                                 std::unique_ptr<CostModel> analytic);

}  // namespace stagewright
