#include "planner_service/search/micro_batch_sizes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/models/stage_oracle.h"

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

std::optional<int64_t> SizeNextTo(const std::vector<int64_t>& sizes, int64_t wanted,
                                  Rounding rounding) {
  if (rounding == Rounding::kUp) {
    const auto above = std::lower_bound(sizes.begin(), sizes.end(), wanted);
    return above == sizes.end() ? std::nullopt : std::optional(*above);
  }
  const auto above = std::upper_bound(sizes.begin(), sizes.end(), wanted);
  return above == sizes.begin() ? std::nullopt : std::optional(*std::prev(above));
}

std::vector<int64_t> MicroBatchSizes(const Problem& problem, const PlanOptions& options,
                                     Rounding rounding) {
  std::vector<int64_t> all = MicroBatches(problem, options);
  if (all.size() <= kMostMicroBatchSizes) return all;
  std::vector<int64_t> sizes;
  for (int64_t power = 1; power < 2 * all.back(); power *= 2) {
    const std::optional<int64_t> next = SizeNextTo(all, power, rounding);
    if (next && (sizes.empty() || sizes.back() != *next)) sizes.push_back(*next);
  }
  return sizes;
}

std::vector<int64_t> EvenlySpread(std::vector<int64_t> sizes, size_t most) {
  if (sizes.size() <= most) return sizes;
  std::vector<int64_t> spread;
  for (size_t i = 0; i < most; ++i) spread.push_back(sizes[i * (sizes.size() - 1) / (most - 1)]);
  return spread;
}

std::vector<int64_t> PromisingSizes(const StageOracle& oracle, const PlanOptions& options,
                                    const SizePromise& promise, size_t most,
                                    const SearchContext& context) {
  const Problem& problem = oracle.problem();
  std::vector<std::pair<double, int64_t>> ranked;
  for (int64_t size : MicroBatchSizes(problem, options, Rounding::kDown)) {
    if (context.Expired()) break;
    if (promise.leaves_out && promise.leaves_out(size)) continue;
    const double one = oracle.Share(size).Time(0, oracle.size());
    const auto count = static_cast<double>(problem.mini_batch / size);
    ranked.emplace_back(one * (count + promise.fill), size);
  }
  std::sort(ranked.begin(), ranked.end());
  if (ranked.size() > most) ranked.resize(most);
  std::vector<int64_t> sizes;
  for (const auto& [time, size] : ranked) sizes.push_back(size);
  return sizes;
}

}  // namespace stagewright
