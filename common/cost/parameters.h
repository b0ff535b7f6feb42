// What parameters cost while a job lasts.
#pragma once

#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/graph/graph.h"

namespace stagewright {

// Optimizer state per trainable parameter element, beyond the parameter and its gradient.
enum class Optimizer { kSgd, kSgdMomentum, kAdam };

// Bytes that a stage holds for its parameters throughout a job: parameter, gradient and optimizer
// state.
Bytes ResidentBytes(const Parameter& parameter, Optimizer optimizer);

// The same of a planning-only node; what its profile says whatever the optimizer, if it does.
Bytes ResidentBytes(const ProfiledCost& cost, Optimizer optimizer);

// The parameters of a planning-only node: without a name, trained, float32.
Parameter ProfiledParameter(const ProfiledCost& cost);

// Parameters used by any of `nodes`, each once, by id.
std::vector<ParameterId> ParametersOf(const Graph& graph, const std::vector<NodeId>& nodes);

}  // namespace stagewright
