#include "planner_service/planners/graphpipe/candidates.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "planner_service/planners/graphpipe/build_strategy.h"
#include "planner_service/planners/graphpipe/pace.h"

namespace stagewright {
namespace {

// Candidates whose optimistic estimate exceeds the best estimate by more are not looked for.
constexpr double kHope = 1.15;
constexpr size_t kMostMicroBatchSizes = 16;
// How much of the messages' time is in the way depends on the schedule, and replicas that save a
// stage may cost more in messages: partitions are looked for with none, half and all of the
// messages' time exposed, and without replicas.
struct Variant {
  double exposed;
  bool replicas;
};
constexpr Variant kVariants[] = {{0, true},  {0.5, true},  {1, true},
                                 {0, false}, {0.5, false}, {1, false}};

class Collector {
 public:
  Collector(const SearchSpace& space, const CandidateOptions& options, const SearchContext& context)
      : space_(space), options_(options), context_(context) {
    if (options.to_beat > 0) best_ = options.to_beat / kHope;
  }

  // Partitions with stages of the given configs over at most `devices` devices.
  void Search(PartitionSearch& search, int32_t devices, int64_t least_round) {
    const int64_t mini_batch = space_.oracle->problem().mini_batch;
    PartitionLimits limits{devices, mini_batch};
    double least = search.LowerBound(devices);
    while (!context_.Expired()) {
      // A pass through a pipeline of one stage is the least to come on top of steady state.
      const double most = kHope * best_ / static_cast<double>(mini_batch);
      std::optional<Partition> found = search.Minimize(least, most, limits);
      if (!found.has_value()) return;
      least = found->bottleneck / (1 + PartitionSearch::kPrecision);
      limits.in_flight = found->deepest - 1;
      Add(*std::move(found));
      if (limits.in_flight < least_round) return;
    }
  }

  std::vector<Candidate> Take() {
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.estimate, a.partition.devices, a.text) <
             std::tie(b.estimate, b.partition.devices, b.text);
    });
    return std::move(found_);
  }

 private:
  void Add(Partition partition) {
    std::string text = ToString(partition);
    if (!seen_.insert(text).second) return;
    const StageOracle& oracle = *space_.oracle;
    Candidate candidate;
    candidate.strategy = BuildStrategy(oracle, partition, space_.kind);
    const Pace pace = EstimatePace(oracle, partition, candidate.strategy);
    candidate.estimate = pace.iteration;
    candidate.partition = std::move(partition);
    candidate.text = std::move(text);
    const auto memory =
        static_cast<Bytes>(options_.memory_share * static_cast<double>(oracle.budget()));
    Candidate ahead = candidate;
    if (CoverMessages(oracle, ahead.partition, pace, memory, ahead.strategy)) {
      ahead.estimate = EstimatePace(oracle, ahead.partition, ahead.strategy).iteration;
      ahead.text += " ahead";
      Keep(std::move(ahead));
    }
    Keep(std::move(candidate));
  }

  void Keep(Candidate candidate) {
    best_ = std::min(best_, candidate.estimate);
    found_.push_back(std::move(candidate));
  }

  const SearchSpace& space_;
  const CandidateOptions& options_;
  const SearchContext& context_;
  double best_ = 1e30;
  std::vector<Candidate> found_;
  std::set<std::string> seen_;
};

// A search for partitions with one set of configs.
struct Attempt {
  std::unique_ptr<PartitionSearch> search;
  int64_t round = std::numeric_limits<int64_t>::max();  // Least samples in flight of a stage.
  double bound = 0;                                     // Iteration time that it can hope for, ns.
};

PartitionOptions OptionsOf(const CandidateOptions& options) {
  PartitionOptions partition;
  partition.max_stages = options.plan.max_stages;
  if (options.plan.num_stages > 0) {
    partition.max_stages = options.plan.num_stages;
    partition.exact_stages = true;
  }
  partition.memory_share = options.memory_share;
  return partition;
}

// The sets of configs to search with: one each, or all at once for per-stage sizes.
std::vector<std::vector<StageConfig>> ConfigSets(const std::vector<int64_t>& sizes,
                                                 const PlanOptions& plan, int64_t mini_batch) {
  std::vector<std::vector<StageConfig>> sets;
  std::vector<StageConfig> all;
  for (int64_t size : sizes) {
    std::vector<StageConfig> some;
    for (int32_t k = 1; k <= std::max(plan.max_k, 1); ++k) {
      if (mini_batch % (k * size) == 0) some.push_back({size, k});
    }
    all.insert(all.end(), some.begin(), some.end());
    sets.push_back(std::move(some));
  }
  if (plan.per_stage_micro_batch) sets = {std::move(all)};
  return sets;
}

}  // namespace

std::vector<int64_t> MicroBatchSizes(int64_t mini_batch, int64_t forced) {
  if (forced > 0) return {forced};
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d * d <= mini_batch; ++d) {
    if (mini_batch % d != 0) continue;
    divisors.push_back(d);
    if (d * d != mini_batch) divisors.push_back(mini_batch / d);
  }
  std::sort(divisors.begin(), divisors.end());
  if (divisors.size() <= kMostMicroBatchSizes) return divisors;
  std::vector<int64_t> sizes;
  for (int64_t power = 1; power <= mini_batch; power *= 2) {
    const int64_t below = *std::prev(std::upper_bound(divisors.begin(), divisors.end(), power));
    if (sizes.empty() || sizes.back() != below) sizes.push_back(below);
  }
  if (sizes.back() != mini_batch) sizes.push_back(mini_batch);
  return sizes;
}

std::vector<Candidate> FindCandidates(const SearchSpace& space, const CandidateOptions& options,
                                      const SearchContext& context, int64_t& states) {
  const Problem& problem = space.oracle->problem();
  const int32_t devices = problem.cluster->size();
  std::vector<Attempt> attempts;
  const auto sizes = MicroBatchSizes(problem.mini_batch, options.plan.micro_batch);
  for (const auto& configs : ConfigSets(sizes, options.plan, problem.mini_batch)) {
    if (context.Expired()) break;
    for (const auto& [exposed, replicas] : kVariants) {
      if (replicas && !options.plan.allow_replicas) continue;
      PartitionOptions partition = OptionsOf(options);
      partition.exposed_messages = exposed;
      partition.replicas = replicas;
      Attempt attempt;
      attempt.search = std::make_unique<PartitionSearch>(*space.oracle, *space.frontier, configs,
                                                         partition, context);
      for (const StageConfig& c : configs) {
        attempt.round = std::min(attempt.round, c.k * c.micro_batch);
      }
      attempt.bound = attempt.search->LowerBound(devices) *
                      static_cast<double>(problem.mini_batch + attempt.round);
      attempts.push_back(std::move(attempt));
    }
  }
  // Promising micro-batch sizes first: what they find shows others to be hopeless.
  std::stable_sort(attempts.begin(), attempts.end(),
                   [](const Attempt& a, const Attempt& b) { return a.bound < b.bound; });
  Collector collector(space, options, context);
  for (int32_t limit = devices; limit >= 1; limit /= 2) {
    for (const Attempt& attempt : attempts) {
      if (context.Expired()) break;
      collector.Search(*attempt.search, limit, attempt.round);
    }
  }
  for (const Attempt& attempt : attempts) states += attempt.search->states();
  return collector.Take();
}

}  // namespace stagewright
