#include "planner_service/planners/graphpipe/recurrence/partition_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/strategy/in_flight.h"
#include "planner_service/planners/graphpipe/build_strategy.h"
#include "tests/planner_service/planners/graphpipe/recurrence/reference.h"
#include "tests/planner_service/planners/graphpipe/search_case.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::ReferencePartitioner;
using testing::Rng;
using testing::SearchCase;
using testing::Uniform;
using testing::Work;

constexpr Bytes kUnit = kMiB;

// Messages take no time, or about as long as the operators of RandomWork.
Cluster MakeCluster(Rng& random, int32_t devices, Bytes memory) {
  return testing::FlatCluster(devices, memory, 0, Uniform(random, 0, 1) == 0 ? 1e15 : 5e10);
}
Cluster FastCluster(int32_t devices) {
  return testing::FlatCluster(devices, 1000 * kUnit, 0, 1e15);
}

Work RandomWork(Rng& random) {
  Work work;
  work.forward = Uniform(random, 1, 20) * kMicrosecond;
  work.backward = 2 * work.forward;
  work.activation_bytes = Uniform(random, 0, 3) * kUnit;
  work.parameter_bytes = Uniform(random, 0, 4) * kUnit;
  return work;
}

// Adds a random series-parallel graph below `sources` and returns its sinks.
std::vector<int32_t> AddSeriesParallel(Rng& random, int32_t size,
                                       const std::vector<int32_t>& sources,
                                       std::vector<Work>& nodes) {
  if (size == 1) {
    nodes.push_back(RandomWork(random));
    nodes.back().after = sources;
    return {static_cast<int32_t>(nodes.size()) - 1};
  }
  const auto first = static_cast<int32_t>(Uniform(random, 1, size - 1));
  if (Uniform(random, 0, 1) == 0) {
    const auto middle = AddSeriesParallel(random, first, sources, nodes);
    return AddSeriesParallel(random, size - first, middle, nodes);
  }
  std::vector<int32_t> sinks = AddSeriesParallel(random, first, sources, nodes);
  const auto more = AddSeriesParallel(random, size - first, sources, nodes);
  sinks.insert(sinks.end(), more.begin(), more.end());
  return sinks;
}

Graph RandomSeriesParallel(Rng& random, int32_t size) {
  std::vector<Work> nodes;
  AddSeriesParallel(random, size, {}, nodes);
  return testing::ProfiledGraph(nodes);
}

// Every time per sample that some stage can have: the answers a search can give.
std::vector<double> PossibleTimes(const SearchCase& c, const PartitionSearch& search,
                                  const std::vector<StageConfig>& configs, bool replicas) {
  std::vector<double> times;
  for (int32_t begin = 0; begin < c.oracle.size(); ++begin) {
    for (int32_t end = begin + 1; end <= c.oracle.size(); ++end) {
      for (const StageConfig& config : configs) {
        for (int32_t d = 1; d <= c.cluster.size() && config.micro_batch % d == 0; d *= 2) {
          times.push_back(search.StageTps(begin, end, d, config));
          if (!replicas) break;
        }
      }
    }
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  return times;
}

// The least of `times` for which `feasible` holds, which is monotone; infinity if none.
double Least(const std::vector<double>& times, const std::function<bool(double)>& feasible) {
  const auto first =
      std::partition_point(times.begin(), times.end(), [&](double t) { return !feasible(t); });
  return first == times.end() ? std::numeric_limits<double>::infinity() : *first;
}

TEST(PartitionSearchTest, EqualsAlgorithm1OnRandomSeriesParallelGraphs) {
  Rng random(21);
  int feasible = 0;
  int infeasible = 0;
  int ahead = 0;
  for (int round = 0; round < 400; ++round) {
    const auto size = static_cast<int32_t>(Uniform(random, 1, 10));
    const auto devices = static_cast<int32_t>(Uniform(random, 1, 6));
    const Bytes memory = Uniform(random, 8, 60) * kUnit;
    const SearchCase c(RandomSeriesParallel(random, size), MakeCluster(random, devices, memory),
                       16);
    const int64_t b = int64_t{1} << Uniform(random, 0, 3);
    PartitionOptions options;
    options.replicas = Uniform(random, 0, 1) == 1;
    PartitionSearch everything = c.Search({{b, 1}}, options);
    ReferencePartitioner reference(c.tree, c.oracle, everything, b, options.replicas);
    options.allowed = reference.StageRanges();
    PartitionSearch restricted = c.Search({{b, 1}}, options);
    const auto times = PossibleTimes(c, everything, {{b, 1}}, options.replicas);
    const PartitionLimits limits{devices, c.problem.mini_batch};

    const double expected =
        Least(times, [&](double t) { return reference.Search(devices, t).has_value(); });
    const double same =
        Least(times, [&](double t) { return restricted.Find(t, limits).has_value(); });
    const double better =
        Least(times, [&](double t) { return everything.Find(t, limits).has_value(); });
    ASSERT_EQ(same, expected) << "round " << round << " " << ToString(c.tree);
    ASSERT_LE(better, expected) << "round " << round;
    if (expected == std::numeric_limits<double>::infinity()) {
      ++infeasible;
      continue;
    }
    ++feasible;
    ahead += better < expected ? 1 : 0;
    // As few devices as algorithm 1 needs, and no more time than asked for.
    const auto partition = restricted.Find(expected, limits);
    EXPECT_LE(partition->bottleneck, expected * (1 + 1e-9));
    EXPECT_TRUE(reference.Search(partition->devices, expected).has_value());
    if (partition->devices > 1) {
      EXPECT_FALSE(reference.Search(partition->devices - 1, expected).has_value());
    }
  }
  EXPECT_GT(feasible, 150);
  EXPECT_GT(infeasible, 20);
  EXPECT_GT(ahead, 10);  // Joined and straddling stages pay.
}

// All partitions of a linear order into contiguous stages with in-flight samples by AssignInFlight.
class EveryPartition {
 public:
  EveryPartition(const SearchCase& c, const PartitionSearch& search,
                 std::vector<StageConfig> configs, bool replicas)
      : c_(c), search_(search), configs_(std::move(configs)), replicas_(replicas) {}

  double Best() {
    best_ = std::numeric_limits<double>::infinity();
    Extend(0, 0, c_.cluster.size());
    return best_;
  }

 private:
  void Extend(int32_t begin, double slowest, int32_t devices) {
    if (slowest >= best_) return;
    if (begin == c_.oracle.size()) {
      if (Fits()) best_ = slowest;
      return;
    }
    for (int32_t end = begin + 1; end <= c_.oracle.size(); ++end) {
      for (const StageConfig& config : configs_) {
        for (int32_t d = 1; d <= devices && config.micro_batch % d == 0; d *= 2) {
          partition_.stages.push_back({begin, end, d, config, 0});
          Extend(end, std::max(slowest, search_.StageTps(begin, end, d, config)), devices - d);
          partition_.stages.pop_back();
          if (!replicas_) break;
        }
      }
    }
  }

  bool Fits() const {
    Strategy strategy = c_.Build(partition_, c_.Place(partition_));
    AssignInFlight(strategy);
    for (size_t s = 0; s < strategy.stages.size(); ++s) {
      const StageChoice& stage = partition_.stages[s];
      const int64_t b = stage.config.micro_batch;
      const Bytes need =
          c_.oracle.Memory(stage.begin, stage.end,
                           {b / stage.replicas, strategy.stages[s].schedule.in_flight / b,
                            c_.problem.mini_batch / b});
      if (need > c_.oracle.budget()) return false;
    }
    return true;
  }

  const SearchCase& c_;
  const PartitionSearch& search_;
  std::vector<StageConfig> configs_;
  bool replicas_;
  Partition partition_;
  double best_ = 0;
};

void ExpectOptimal(Rng& random, int rounds, int32_t most_nodes, bool replicas,
                   const std::vector<StageConfig>& configs) {
  int feasible = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Work> nodes;
    const auto size = static_cast<int32_t>(Uniform(random, 1, most_nodes));
    for (int32_t v = 0; v < size; ++v) {
      nodes.push_back(RandomWork(random));
      for (int32_t u = 0; u < v; ++u) {
        if (Uniform(random, 0, 2) == 0) nodes[v].after.push_back(u);
      }
    }
    const auto devices = static_cast<int32_t>(Uniform(random, 1, 5));
    const SearchCase c(testing::ProfiledGraph(nodes),
                       MakeCluster(random, devices, Uniform(random, 8, 60) * kUnit), 8);
    PartitionOptions options;
    options.replicas = replicas;
    PartitionSearch search = c.Search(configs, options);
    const auto times = PossibleTimes(c, search, configs, replicas);
    const double found = Least(times, [&](double t) {
      return search.Find(t, {devices, c.problem.mini_batch}).has_value();
    });
    ASSERT_EQ(found, EveryPartition(c, search, configs, replicas).Best()) << "round " << round;
    feasible += found < std::numeric_limits<double>::infinity() ? 1 : 0;
  }
  EXPECT_GT(feasible, rounds / 4);
}

TEST(PartitionSearchTest, IsOptimalAmongAllContiguousPartitionsOfAnyGraph) {
  Rng random(22);
  ExpectOptimal(random, 200, 9, false, {{2, 1}});
}

TEST(PartitionSearchTest, IsOptimalWithReplicas) {
  Rng random(23);
  ExpectOptimal(random, 150, 6, true, {{4, 1}});
}

TEST(PartitionSearchTest, IsOptimalWithSeveralConfigsPerStage) {
  Rng random(24);
  ExpectOptimal(random, 60, 5, false, {{1, 1}, {2, 1}, {1, 2}, {4, 1}});
}

TEST(PartitionSearchTest, SamplesInFlightAreThoseOfAlgorithm2) {
  Rng random(25);
  for (int round = 0; round < 200; ++round) {
    const auto size = static_cast<int32_t>(Uniform(random, 2, 12));
    const SearchCase c(testing::RandomProfile(random, size), FastCluster(6), 16);
    PartitionSearch search = c.Search({{2, 1}}, {});
    const auto partition = search.Minimize(0, 1e18, {6, 16});
    ASSERT_TRUE(partition.has_value());
    Strategy strategy = c.Build(*partition, c.Place(*partition));
    AssignInFlight(strategy);
    for (size_t s = 0; s < strategy.stages.size(); ++s) {
      EXPECT_EQ(strategy.stages[s].schedule.in_flight, partition->stages[s].in_flight);
    }
  }
}

TEST(PartitionSearchTest, MinimizeStopsWithinItsPrecision) {
  Rng random(26);
  for (int round = 0; round < 100; ++round) {
    const SearchCase c(RandomSeriesParallel(random, 10), FastCluster(4), 16);
    PartitionSearch search = c.Search({{4, 1}}, {});
    const PartitionLimits limits{4, 16};
    const auto partition = search.Minimize(0, 1e18, limits);
    ASSERT_TRUE(partition.has_value());
    const double least = Least(PossibleTimes(c, search, {{4, 1}}, true),
                               [&](double t) { return search.Find(t, limits).has_value(); });
    EXPECT_LE(partition->bottleneck, least * (1 + 2 * PartitionSearch::kPrecision));
    EXPECT_GE(partition->bottleneck, least);
    EXPECT_GE(least * (1 + 1e-9), search.LowerBound(4));
  }
}

std::string Text(const std::optional<Partition>& partition) {
  return partition.has_value() ? absl::StrCat(ToString(*partition), " ", partition->bottleneck)
                               : "none";
}

// Searches that learn from each other answer as searches that start afresh, whatever was asked
// before.
void ExpectLearningChangesNothing(Rng& random, const std::vector<StageConfig>& configs) {
  int found = 0;
  int missing = 0;
  for (int round = 0; round < 60; ++round) {
    const auto size = static_cast<int32_t>(Uniform(random, 2, 14));
    const SearchCase c(RandomSeriesParallel(random, size),
                       MakeCluster(random, 6, Uniform(random, 10, 80) * kUnit), 16);
    std::vector<PartitionOptions> options;
    for (Messages messages : {Messages::kInside, Messages::kNetwork, Messages::kExposed}) {
      options.push_back({});
      options.back().messages = messages;
    }
    options.push_back({});
    options.back().replicas = false;
    std::vector<std::unique_ptr<PartitionSearch>> searches;
    for (const PartitionOptions& each : options) {
      auto search = searches.empty() || !each.replicas
                        ? std::make_unique<PartitionSearch>(c.ranges, configs, each, c.context)
                        : std::make_unique<PartitionSearch>(*searches[0], each.messages);
      for (size_t s = 0; s < searches.size(); ++s) {
        if (each.replicas || s == 0) search->LearnFrom(*searches[s]);
      }
      searches.push_back(std::move(search));
    }
    const auto times = PossibleTimes(c, *searches[0], configs, true);
    for (int question = 0; question < 12; ++question) {
      const double t = times[Uniform(random, 0, static_cast<int64_t>(times.size()) - 1)];
      const PartitionLimits limits{static_cast<int32_t>(Uniform(random, 1, 6)),
                                   Uniform(random, 1, 16)};
      for (size_t s = 0; s < searches.size(); ++s) {
        if (Uniform(random, 0, 7) == 0) searches[s]->Forget();
        const std::string expected = Text(c.Search(configs, options[s]).Find(t, limits));
        ASSERT_EQ(Text(searches[s]->Find(t, limits)), expected) << "round " << round;
        ++(expected == "none" ? missing : found);
      }
    }
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(missing, 200);
}

TEST(PartitionSearchTest, LearningFromOtherSearchesChangesNothing) {
  Rng random(27);
  ExpectLearningChangesNothing(random, {{2, 1}});
}

TEST(PartitionSearchTest, LearningChangesNothingWithSeveralConfigs) {
  Rng random(28);
  ExpectLearningChangesNothing(random, {{1, 1}, {2, 1}, {2, 2}, {4, 1}});
}

TEST(PartitionSearchTest, NumberOfStagesAndSamplesInFlightAreLimits) {
  const SearchCase c(testing::ProfiledChain(8, {kMicrosecond, 2 * kMicrosecond, kUnit, kUnit}),
                     FastCluster(8), 16);
  for (int32_t stages = 1; stages <= 8; ++stages) {
    PartitionOptions options;
    options.max_stages = stages;
    const auto at_most = c.Search({{1, 1}}, options).Minimize(0, 1e18, {8, 16});
    ASSERT_TRUE(at_most.has_value());
    EXPECT_LE(static_cast<int32_t>(at_most->stages.size()), stages);
    EXPECT_NEAR(at_most->bottleneck, 3000.0 * ((8 + stages - 1) / stages), 1e-3);
    options.exact_stages = true;
    const auto exactly = c.Search({{1, 1}}, options).Minimize(0, 1e18, {8, 16});
    ASSERT_TRUE(exactly.has_value());
    EXPECT_EQ(static_cast<int32_t>(exactly->stages.size()), stages);
    const auto shallow = c.Search({{1, 1}}, {}).Minimize(0, 1e18, {8, stages});
    ASSERT_TRUE(shallow.has_value());
    EXPECT_LE(shallow->deepest, stages);
  }
}

TEST(PartitionSearchTest, ACancelledSearchStops) {
  const SearchCase c(testing::ProfiledChain(8, {kMicrosecond, 2 * kMicrosecond, kUnit, kUnit}),
                     FastCluster(8), 16);
  SearchContext cancelled;
  cancelled.Cancel();
  PartitionSearch search(c.ranges, {{1, 1}}, {}, cancelled);
  EXPECT_FALSE(search.Minimize(0, 1e18, {8, 16}).has_value());
}

}  // namespace
}  // namespace stagewright
