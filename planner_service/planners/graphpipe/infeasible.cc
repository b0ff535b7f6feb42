#include "planner_service/planners/graphpipe/infeasible.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

std::string Advice(const PlanOptions& options, Optimizer optimizer, bool split_helps) {
  std::string advice = split_helps ? "more devices or devices with more memory would help"
                                   : "devices with more memory would help";
  if (options.micro_batch > 1) absl::StrAppend(&advice, ", and so would a smaller micro_batch");
  if (options.num_stages > 0 || options.max_stages > 0) {
    absl::StrAppend(&advice, ", and so would another number of stages");
  }
  if (optimizer != Optimizer::kSgd) {
    absl::StrAppend(&advice, ", and so would an optimizer with less state (sgd)");
  }
  return advice;
}

// The least memory one replica of a stage of only the operator at `p` needs.
Bytes LeastMemory(const StageOracle& oracle, int32_t p, int64_t samples, RecomputePolicy policy) {
  const Bytes kept = oracle.Memory(p, p + 1, {samples, 1, 1});
  const Bytes recomputed = oracle.Memory(p, p + 1, {samples, 1, 1, true});
  if (policy == RecomputePolicy::kNever) return kept;
  return policy == RecomputePolicy::kAlways ? recomputed : std::min(kept, recomputed);
}

}  // namespace

std::string ImpossibleOptions(const Problem& problem, const PlanOptions& options) {
  if (options.micro_batch > 0 && problem.mini_batch % options.micro_batch != 0) {
    return absl::StrCat("micro_batch ", options.micro_batch, " does not divide the mini-batch of ",
                        problem.mini_batch, " samples");
  }
  if (options.num_stages > problem.operators->size()) {
    return absl::StrCat("num_stages is ", options.num_stages, " but the model has only ",
                        problem.operators->size(), " operators that can be separated");
  }
  if (options.num_stages > problem.cluster->size()) {
    return absl::StrCat("num_stages is ", options.num_stages, " but the cluster has only ",
                        problem.cluster->size(), " devices");
  }
  if (options.num_stages > 0 && options.max_stages > 0 && options.num_stages > options.max_stages) {
    return absl::StrCat("num_stages is ", options.num_stages, " but max_stages is ",
                        options.max_stages);
  }
  return "";
}

std::string WhyInfeasible(const SearchSpace& space, const PlanOptions& options,
                          const SearchContext& context) {
  const StageOracle& oracle = *space.oracle;
  const Problem& problem = oracle.problem();
  const std::vector<int64_t> sizes = MicroBatchSizes(problem, options, Rounding::kDown);
  if (sizes.empty()) return "";
  const int64_t micro_batch = sizes.front();
  int64_t share = micro_batch;
  while (options.allow_replicas && share % 2 == 0 &&
         micro_batch / share * 2 <= problem.cluster->size()) {
    share /= 2;
  }

  const auto least_of = [&](int32_t p) { return LeastMemory(oracle, p, share, options.recompute); };
  int32_t worst = 0;
  for (int32_t p = 1; p < oracle.size(); ++p) {
    if (least_of(p) > least_of(worst)) worst = p;
  }
  const Bytes least = least_of(worst);
  if (least > oracle.budget()) {
    return absl::StrCat(
        "operator \"", problem.operators->op(oracle.order()[worst]).name, "\" alone needs ",
        FormatBytes(least), " (", FormatBytes(oracle.At(worst, worst + 1).resident),
        " of it parameters, gradients and optimizer state) for ", share,
        share == 1 ? " sample" : " samples", ", but a device has ", FormatBytes(oracle.budget()),
        "; ", Advice(options, problem.optimizer, false));
  }

  const Bytes resident = oracle.At(0, oracle.size()).resident;
  const std::string devices =
      absl::StrCat(problem.cluster->size(), " devices of ", FormatBytes(oracle.budget()));
  if (resident > oracle.budget() * problem.cluster->size()) {
    return absl::StrCat("parameters, gradients and optimizer state need ", FormatBytes(resident),
                        ", more than ", devices, " have together; ",
                        Advice(options, problem.optimizer, true));
  }
  // How many devices would do, with as many as there are operators?
  PartitionOptions any;
  any.replicas = false;
  any.recompute = options.recompute;
  StageRanges ranges(oracle, *space.frontier);
  PartitionSearch search(ranges, {{micro_batch, 1}}, any, context);
  const auto enough =
      search.Find(std::numeric_limits<double>::max(), {oracle.size(), problem.mini_batch});
  if (enough.has_value() && enough->devices > problem.cluster->size()) {
    return absl::StrCat(
        "with micro-batches of ", micro_batch, micro_batch == 1 ? " sample" : " samples",
        " the model needs ", enough->devices, " devices of ", FormatBytes(oracle.budget()), " for ",
        FormatBytes(resident), " of resident state and the samples in flight, but ", "there are ",
        problem.cluster->size(), "; ", Advice(options, problem.optimizer, true));
  }
  return absl::StrCat("no partition into ",
                      options.num_stages > 0   ? absl::StrCat("exactly ", options.num_stages)
                      : options.max_stages > 0 ? absl::StrCat("at most ", options.max_stages)
                                               : absl::StrCat("at most ", problem.cluster->size()),
                      " stages keeps ", FormatBytes(resident),
                      " of resident state and the samples in flight within ", devices, "; ",
                      Advice(options, problem.optimizer, true));
}

}  // namespace stagewright
