#include "planner_service/planners/graphpipe/devices_needed.h"

#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {

std::string DevicesNeeded(const SearchSpace& space, const PlanOptions& options,
                          const SearchContext& context) {
  const StageOracle& oracle = *space.oracle;
  const Problem& problem = oracle.problem();
  const std::vector<int64_t> sizes = MicroBatches(problem, options);
  if (sizes.empty()) return "";
  PartitionOptions any;
  any.replicas = false;
  any.recompute = options.recompute;
  StageRanges ranges(oracle, *space.frontier);
  PartitionSearch search(ranges, {{sizes.front(), 1}}, any, context);
  const std::optional<Partition> enough =
      search.Find(std::numeric_limits<double>::max(), {oracle.size(), problem.mini_batch});
  if (!enough.has_value() || enough->devices <= problem.cluster->size()) return "";
  return absl::StrCat("with micro-batches of ", sizes.front(),
                      sizes.front() == 1 ? " sample" : " samples", " the model needs ",
                      enough->devices, " devices of ", FormatBytes(oracle.budget()),
                      ", but there are ", problem.cluster->size());
}

}  // namespace stagewright
