#include "planner_service/search/why_not.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/cost/parameters.h"
#include "planner_service/models/stage_oracle.h"
#include "planner_service/planner/fit.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

// The fewest samples that a replica of a stage gets.
int64_t SmallestShare(const Problem& problem, const PlanOptions& options) {
  const std::vector<int64_t> sizes = MicroBatches(problem, options);
  if (sizes.empty()) return 1;
  const int64_t replicas =
      std::min<int64_t>(problem.cluster->size(), MostReplicas(problem, options, sizes.front()));
  return (sizes.front() + replicas - 1) / replicas;
}

// The least memory that a stage of only the operator at `p` needs.
Bytes LeastMemory(const StageOracle& oracle, int32_t p, int64_t samples, RecomputePolicy policy) {
  const Bytes kept = oracle.Memory(p, p + 1, {samples, 1, 1});
  const Bytes recomputed = oracle.Memory(p, p + 1, {samples, 1, 1, true});
  if (policy == RecomputePolicy::kNever) return kept;
  return policy == RecomputePolicy::kAlways ? recomputed : std::min(kept, recomputed);
}

// An operator that no device has room for with the micro-batches that the options leave, if any.
std::optional<std::string> OperatorTooLarge(const StageOracle& oracle, const PlanOptions& options) {
  const Problem& problem = oracle.problem();
  Bytes largest = 0;
  for (const Device& device : problem.cluster->devices()) {
    largest = std::max(largest, device.memory);
  }
  const int64_t samples = SmallestShare(problem, options);
  int32_t worst = 0;
  Bytes most = 0;
  for (int32_t p = 0; p < oracle.size(); ++p) {
    const Bytes least = LeastMemory(oracle, p, samples, options.recompute);
    if (least > most) std::tie(worst, most) = std::tie(p, least);
  }
  if (most <= largest) return std::nullopt;
  return absl::StrCat(
      "operator '", problem.operators->op(oracle.order()[worst]).name, "' alone needs ",
      FormatBytes(most), " (", FormatBytes(oracle.At(worst, worst + 1).resident),
      " of it parameters, gradients and optimizer state) for ", samples,
      samples == 1 ? " sample" : " samples", ", and the largest device has ", FormatBytes(largest));
}

// What must fit at least, and what there is.
std::string MemoryOfAll(const StageOracle& oracle) {
  const Cluster& cluster = *oracle.problem().cluster;
  Bytes memory = 0;
  for (const Device& device : cluster.devices()) memory += device.memory;
  return absl::StrCat(
      "parameters, gradients and optimizer state need ",
      FormatBytes(oracle.At(0, oracle.size()).resident), ", samples in flight come on top, and ",
      cluster.size() == 1 ? std::string("the device has ")
                          : absl::StrCat("the ", cluster.size(), " devices together have "),
      FormatBytes(memory));
}

// `together`: it is not a single operator that is too large.
std::string Advice(const std::string& planner, const PlanOptions& options, Optimizer optimizer,
                   bool together) {
  std::vector<std::string> helps = {"devices with more memory"};
  if (together) helps.insert(helps.begin(), "more devices");
  if (options.micro_batch > 1) helps.push_back("a smaller micro_batch");
  if (options.num_stages > 0 || options.max_stages > 0) {
    helps.push_back("another number of stages");
  }
  if (optimizer != Optimizer::kSgd) helps.push_back("an optimizer with less state (sgd)");
  if (planner != "auto") helps.push_back("planner 'auto'");
  const std::string last = std::move(helps.back());
  helps.pop_back();
  return absl::StrCat(absl::StrJoin(helps, ", "), helps.empty() ? "" : " or ", last, " may help");
}

bool MemoryIsToBlame(const absl::Status& closest) {
  return closest.ok() || absl::IsResourceExhausted(closest) || absl::IsUnknown(closest);
}

}  // namespace

std::string ImpossibleOptions(const Problem& problem, const PlanOptions& options, int64_t loops) {
  if (options.micro_batch > 0 && problem.mini_batch % options.micro_batch != 0) {
    return absl::StrCat("micro_batch ", options.micro_batch, " does not divide the mini-batch of ",
                        problem.mini_batch, " samples");
  }
  if (options.max_stages > 0 && options.num_stages > options.max_stages) {
    return absl::StrCat("num_stages is ", options.num_stages, ", but max_stages is ",
                        options.max_stages);
  }
  const int32_t operators = problem.operators->size();
  if (options.num_stages > operators) {
    return absl::StrCat("num_stages is ", options.num_stages, ", but the graph has only ",
                        operators, operators == 1 ? " operator" : " operators",
                        " that can be separated");
  }
  const int32_t devices = problem.cluster->size();
  const int64_t room = loops * devices;
  if (loops == 0 || options.num_stages <= room) return "";
  return absl::StrCat("num_stages is ", options.num_stages, ", but ", devices,
                      devices == 1 ? " device" : " devices", " with at most ", loops,
                      loops == 1 ? " stage" : " stages", " each have room for ", room);
}

Outcome NoneFound(const std::string& planner, const Problem& problem, const PlanOptions& options,
                  const Shortfall& shortfall) {
  Outcome outcome;
  if (auto reason = WhyNothingFits(problem)) {
    outcome.reason = *std::move(reason);
    return outcome;
  }
  outcome.termination = Termination::kLimit;
  const bool memory = MemoryIsToBlame(shortfall.closest);
  std::string& reason = outcome.reason;
  reason = absl::StrCat("planner '", planner, "' found no plan", memory ? " that fits" : "",
                        shortfall.scope.empty() ? "" : " among ", shortfall.scope,
                        ", which does not prove that there is none");
  if (memory) {
    const StageOracle oracle(problem, ModelOrder(problem));
    const std::optional<std::string> too_large = OperatorTooLarge(oracle, options);
    absl::StrAppend(&reason, ": ", too_large ? *too_large : MemoryOfAll(oracle),
                    shortfall.need.empty() ? "" : "; ", shortfall.need, "; ",
                    Advice(planner, options, problem.optimizer, !too_large.has_value()));
  }
  if (!shortfall.closest.message().empty())
    absl::StrAppend(&reason, "; closest: ", std::string(shortfall.closest.message()));
  return outcome;
}

}  // namespace stagewright
