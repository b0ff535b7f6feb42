#include "planner_service/planners/graphpipe/candidates.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "planner_service/planners/graphpipe/build_strategy.h"
#include "planner_service/planners/graphpipe/pace.h"
#include "planner_service/planners/graphpipe/stage_timeline.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

// Precision of the bottleneck's time in a search that only proposes.
constexpr double kPrecision = 1e-2;
// Each pipeline looked for is at least this much shallower than the last.
constexpr double kShallower = 0.85;
// Messages whose time exceeds the closed estimate without them by this share
// matter.
constexpr double kMatters = 1.02;
// Timelines are run for at least so many drafts, and on until so many tasks are
// done.
constexpr int kLeastTimelines = 4;
constexpr int64_t kMostTimelineTasks = 1'000'000;
// Where there are so few devices, every smaller number is tried, too.
constexpr int32_t kFewDevices = 4;

// How much of the messages' time is in the way depends on the schedule, and
// replicas that save a stage may cost more in messages.
struct Variant {
  Messages messages;
  bool replicas;
};
constexpr Variant kVariants[] = {{Messages::kInside, true},
                                 {Messages::kNetwork, true},
                                 {Messages::kExposed, true},
                                 {Messages::kInside, false},
                                 {Messages::kExposed, false}};

class Collector {
 public:
  Collector(const SearchSpace& space, const CandidateOptions& options, const SearchContext& context)
      : space_(space), options_(options), context_(context) {
    if (options.to_beat > 0) best_ = options.to_beat;
  }

  // Partitions with stages of the given configs over at most `devices` devices.
  // `persist`: a depth at which nothing can win does not end the search for
  // shallower ones.
  void Search(PartitionSearch& search, int32_t devices, int64_t least_round, bool persist) {
    const auto mini_batch = static_cast<double>(space_.oracle->problem().mini_batch);
    PartitionLimits limits{devices, space_.oracle->problem().mini_batch};
    double least = search.LowerBound(devices);
    bool first = true;
    while (!context_.Expired()) {
      // A shallower pipeline mostly keeps about as much in flight as it may,
      // and takes half of that to fill and half to drain.
      const double fill = first ? 0 : static_cast<double>(limits.in_flight) / 2;
      const double most = best_ / (mini_batch + fill);
      std::optional<Partition> found = search.Minimize(least, most, limits, kPrecision);
      if (!found.has_value() && (first || !persist)) return;
      const int64_t deepest = found.has_value() ? found->deepest : limits.in_flight;
      limits.in_flight =
          std::min(deepest - 1, static_cast<int64_t>(kShallower * static_cast<double>(deepest)));
      if (found.has_value()) {
        least = found->bottleneck / (1 + kPrecision);
        Draft(*std::move(found), first);
      } else {
        least = std::max(least, most);
      }
      first = false;
      if (limits.in_flight < least_round) return;
    }
  }

  std::vector<Candidate> Take() {
    std::stable_sort(drafts_.begin(), drafts_.end(), [](const Drafted& a, const Drafted& b) {
      return std::tie(a.pace.hope, a.candidate.partition.devices, a.candidate.text) <
             std::tie(b.pace.hope, b.candidate.partition.devices, b.candidate.text);
    });
    for (Drafted& draft : drafts_) {
      if (draft.pace.hope > best_ || context_.Expired()) break;
      if (late_ >= kLeastTimelines && tasks_ > kMostTimelineTasks) break;
      ++late_;
      Time(std::move(draft));
    }
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.estimate, a.partition.devices, a.text) <
             std::tie(b.estimate, b.partition.devices, b.text);
    });
    return std::move(found_);
  }

 private:
  struct Drafted {
    Candidate candidate;
    Pace pace;
  };

  void Draft(Partition partition, bool time) {
    const StageOracle& oracle = *space_.oracle;
    // Links only add to it.
    if (LeastHope(oracle, partition, StageEdges(oracle, partition, space_.kind)) >
        best_ * kTimeSlack) {
      return;
    }
    std::string text = ToString(partition);
    if (!seen_.insert(text).second) return;
    const std::vector<bool> spread = StagesToSpread(oracle, partition, partition.bottleneck);
    if (!spread.empty()) {
      AddDraft({space_.kind, &oracle, partition, MakeLayout(oracle, partition, space_.kind, spread),
                0, text + " spread"},
               time);
    }
    Layout layout = MakeLayout(oracle, partition, space_.kind, {});
    AddDraft({space_.kind, &oracle, std::move(partition), std::move(layout), 0, std::move(text)},
             time);
  }

  void AddDraft(Candidate candidate, bool time) {
    const StageOracle& oracle = *space_.oracle;
    Pace pace = EstimatePace(oracle, candidate.partition, candidate.layout);
    if (pace.hope > best_) return;
    Drafted draft{std::move(candidate), std::move(pace)};
    const auto tasks = [&] {
      return TimelineTasks(oracle, draft.candidate.partition, draft.candidate.layout);
    };
    if (time && tasks_ + tasks() <= kMostTimelineTasks) {
      Time(std::move(draft));
    } else {
      drafts_.push_back(std::move(draft));
    }
  }

  void Time(Drafted draft) {
    Candidate& candidate = draft.candidate;
    const StageOracle& oracle = *space_.oracle;
    tasks_ += TimelineTasks(oracle, candidate.partition, candidate.layout);
    const TimelineCosts costs = StageTimelineCosts(oracle, candidate.partition, candidate.layout);
    candidate.estimate =
        StageTimeline(oracle, candidate.partition, candidate.layout, costs, context_);
    if (candidate.estimate > kMatters * draft.pace.hope) {
      const auto memory =
          static_cast<Bytes>(options_.memory_share * static_cast<double>(oracle.budget()));
      Candidate ahead = candidate;
      if (CoverMessages(oracle, ahead.partition, draft.pace, memory, ahead.layout)) {
        tasks_ += TimelineTasks(oracle, ahead.partition, ahead.layout);
        ahead.estimate = StageTimeline(oracle, ahead.partition, ahead.layout, costs, context_);
        ahead.text += " ahead";
        Keep(std::move(ahead));
      }
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
  std::vector<Drafted> drafts_;  // Not timed yet.
  std::vector<Candidate> found_;
  std::set<std::string> seen_;
  int64_t tasks_ = 0;  // Tasks of all timelines so far.
  int late_ = 0;       // Timelines after all drafts were there.
};

// A search for partitions with one set of configs.
struct Attempt {
  std::unique_ptr<PartitionSearch> search;
  PartitionOptions options;
  bool mixed = false;                                   // Stages may have different sizes.
  int64_t round = std::numeric_limits<int64_t>::max();  // Least samples in
                                                        // flight of a stage.
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
  partition.recompute = options.plan.recompute;
  return partition;
}

// The sets of configs to search with: one each, and all at once for per-stage
// sizes.
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
  if (plan.per_stage_micro_batch) sets.push_back(std::move(all));
  return sets;
}

// The numbers of devices that candidates may use: all, half of them and so on, and of few every
// number, falling.
std::vector<int32_t> DeviceLimits(int32_t devices) {
  std::vector<int32_t> limits;
  for (int32_t limit = devices; limit >= 1; limit = limit > kFewDevices ? limit / 2 : limit - 1) {
    limits.push_back(limit);
  }
  return limits;
}

}  // namespace

std::vector<Candidate> FindCandidates(const SearchSpace& space, const CandidateOptions& options,
                                      const SearchContext& context, int64_t& states) {
  const Problem& problem = space.oracle->problem();
  const int32_t devices = problem.cluster->size();
  std::vector<Attempt> attempts;
  std::vector<int64_t> sizes = MicroBatchSizes(problem, options.plan, Rounding::kDown);
  if (options.plan.micro_batch == 0) {
    std::erase_if(sizes, [&](int64_t size) {
      return size < problem.mini_batch &&
             2 * (problem.mini_batch / size) * devices > options.most_actions;
    });
  }
  for (const auto& configs : ConfigSets(sizes, options.plan, problem.mini_batch)) {
    if (context.Expired()) break;
    const size_t first = attempts.size();
    for (const auto& [messages, replicas] : kVariants) {
      if (replicas && !options.plan.allow_replicas) continue;
      PartitionOptions partition = OptionsOf(options);
      partition.messages = messages;
      partition.replicas = replicas;
      Attempt attempt;
      attempt.mixed = configs.front().micro_batch != configs.back().micro_batch;
      const auto alike =
          std::find_if(attempts.begin() + static_cast<std::ptrdiff_t>(first), attempts.end(),
                       [&](const Attempt& other) { return other.options.replicas == replicas; });
      attempt.search =
          alike == attempts.end()
              ? std::make_unique<PartitionSearch>(*space.ranges, configs, partition, context)
              : std::make_unique<PartitionSearch>(*alike->search, messages);
      for (size_t a = first; a < attempts.size(); ++a) {
        const PartitionOptions& other = attempts[a].options;
        if (other.messages <= messages && other.replicas >= replicas) {
          attempt.search->LearnFrom(*attempts[a].search);
        }
      }
      attempt.options = std::move(partition);
      for (const StageConfig& c : configs) {
        attempt.round = std::min(attempt.round, c.k * c.micro_batch);
      }
      attempt.bound = attempt.search->LowerBound(devices) *
                      static_cast<double>(problem.mini_batch + attempt.round);
      attempts.push_back(std::move(attempt));
    }
  }
  // Promising micro-batch sizes first: what they find shows others to be
  // hopeless. Sizes per stage have the least bound and by far the most to
  // search, so they only look for what beats the rest.
  std::stable_sort(attempts.begin(), attempts.end(), [](const Attempt& a, const Attempt& b) {
    return std::tie(a.mixed, a.bound) < std::tie(b.mixed, b.bound);
  });
  Collector collector(space, options, context);
  for (int32_t limit : DeviceLimits(devices)) {
    for (const Attempt& attempt : attempts) {
      if (context.Expired()) break;
      collector.Search(*attempt.search, limit, attempt.round, attempt.mixed);
      attempt.search->Forget();
    }
  }
  for (const Attempt& attempt : attempts) states += attempt.search->states();
  return collector.Take();
}

}  // namespace stagewright
