// How many devices a model would need, where a search found that those there are do not do.
#pragma once

#include <string>

#include "planner_service/planners/graphpipe/candidates.h"

namespace stagewright {

// "with micro-batches of 1 sample the model needs 4 devices of 1 GiB, but there are 3"; empty if
// not even a device for each operator would do, or as many as there are, which memory did not let.
// REQUIRES: the search over `space` found nothing. Takes one search with a device per operator.
std::string DevicesNeeded(const SearchSpace& space, const PlanOptions& options,
                          const SearchContext& context);

}  // namespace stagewright
