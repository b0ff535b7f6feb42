#include "planner_service/planner/micro_batches.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagewright {

std::vector<int64_t> MicroBatches(const Problem& problem, const PlanOptions& options,
                                  int64_t replicas) {
  std::vector<int64_t> sizes;
  const auto add = [&](int64_t size) {
    if (SharesWithin(problem.graph->samples(), size, replicas)) sizes.push_back(size);
  };
  if (options.micro_batch > 0) {
    add(options.micro_batch);
    return sizes;
  }
  for (int64_t low = 1; low <= problem.mini_batch / low; ++low) {
    if (problem.mini_batch % low != 0) continue;
    add(low);
    if (low != problem.mini_batch / low) add(problem.mini_batch / low);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

int64_t MostReplicas(const Problem& problem, const PlanOptions& options, int64_t micro_batch) {
  if (!options.allow_replicas) return 1;
  return std::max<int64_t>(1, micro_batch / problem.graph->samples().least);
}

std::string WhyNoMicroBatch(const Problem& problem, const PlanOptions& options) {
  const auto devices = options.allow_replicas ? problem.cluster->size() : 1;
  for (int64_t replicas = 1; replicas <= devices; ++replicas) {
    if (!MicroBatches(problem, options, replicas).empty()) return "";
  }
  const SampleBounds bounds = problem.graph->samples();
  const std::string most =
      bounds.most == SampleBounds{}.most ? "any number" : absl::StrCat(bounds.most);
  return absl::StrCat(
      "the model takes from ", bounds.least, " to ", most, " samples in one forward pass, and ",
      options.micro_batch > 0
          ? absl::StrCat("micro-batches of ", options.micro_batch, " samples do not")
          : absl::StrCat("no micro-batch that divides a mini-batch of ", problem.mini_batch,
                         " samples does"),
      options.micro_batch > 0 ? "; choose another micro_batch, or none"
                              : "; choose another mini_batch");
}

}  // namespace stagewright
