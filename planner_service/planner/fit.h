// A proof that no plan exists, found before any search: what is too large, by how much, and what
// would make it fit.
#pragma once

#include <optional>
#include <string>

#include "planner_service/planner/planner.h"

namespace stagewright {

// A reason if some operator alone is larger than every device, or all parameters together are
// larger than the cluster; nullopt otherwise, which promises nothing. Valid for every planner,
// because planners never cut operators. O(nodes).
std::optional<std::string> WhyNothingFits(const Problem& problem);

// The node with the most parameters in the operator that WhyNothingFits names; nullopt if no
// operator is larger than every device. O(nodes).
std::optional<NodeId> NodeTooLarge(const Problem& problem);

}  // namespace stagewright
