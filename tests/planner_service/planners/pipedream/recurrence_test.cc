#include "planner_service/planners/pipedream/recurrence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "planner_service/planners/pipedream/partition.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright::pipedream {
namespace {

using testing::Rng;
using testing::Uniform;

LayerProfile RandomProfile(Rng& rng, Dag dag) {
  LayerProfile profile{std::move(dag), {}, {}, {}};
  for (int32_t v = 0; v < profile.dag.size(); ++v) {
    profile.seconds.push_back(static_cast<double>(Uniform(rng, 0, 20)));
    profile.output.push_back(static_cast<double>(Uniform(rng, 0, 30)));
    profile.parameters.push_back(static_cast<double>(Uniform(rng, 0, 3) * Uniform(rng, 0, 40)));
  }
  return profile;
}

Dag Chain(int32_t n) {
  std::vector<Dag::Edge> edges;
  for (int32_t v = 1; v < n; ++v) edges.emplace_back(v - 1, v);
  return *Dag::Create(n, edges);
}

// Calls `visit` with every pipeline of the layers outside `done` on exactly the machines of
// levels[depth], by trying every downset. An inner level's pipelines are visited, too.
class Exhaustive {
 public:
  Exhaustive(const LayerProfile& profile, const std::vector<Level>& levels,
             int32_t most_stages = 99)
      : profile_(profile), levels_(levels), most_stages_(most_stages) {}

  double Least(const Rules& rules) {
    double least = Recurrence::kNever;
    std::vector<PlannedStage> stages;
    const uint32_t all = (1u << profile_.size()) - 1;
    Grow(levels_.size() - 1, 0, all, levels_.back().machines, stages,
         [&](const std::vector<PlannedStage>& plan) {
           if (static_cast<int32_t>(plan.size()) > most_stages_) return;
           const double value = Objective(profile_, rules, levels_, plan);
           if (value < least) fewest = plan.size();
           if (value == least) fewest = std::min(fewest, plan.size());
           least = std::min(least, value);
         });
    return least;
  }
  size_t fewest = 0;

 private:
  bool IsDownset(uint32_t set) const {
    for (const auto& [from, to] : profile_.dag.Edges()) {
      if ((set >> to & 1) && !(set >> from & 1)) return false;
    }
    return true;
  }

  template <typename Visit>
  void Grow(size_t depth, uint32_t done, uint32_t end, int32_t machines,
            std::vector<PlannedStage>& stages, const Visit& visit) {
    if (done == end) {
      if (machines == 0) visit(stages);
      return;
    }
    for (uint32_t next = 1; next <= end; ++next) {
      if ((next & done) != done || (next & end) != next || next == done || !IsDownset(next)) {
        continue;
      }
      for (int32_t replicas = 1; replicas <= machines; ++replicas) {
        PlannedStage stage;
        stage.replicas = replicas;
        for (int32_t v = 0; v < profile_.size(); ++v) {
          if ((next & ~done) >> v & 1) stage.layers.push_back(v);
        }
        const auto rest = [&] {
          stages.push_back(stage);
          Grow(depth, next, end, machines - replicas, stages, visit);
          stages.pop_back();
        };
        if (depth == 0) {
          rest();
          continue;
        }
        std::vector<PlannedStage> inner;
        const std::function<void(const std::vector<PlannedStage>&)> each =
            [&](const std::vector<PlannedStage>& plan) {
              stage.inner = plan;
              rest();
            };
        GrowInner(depth - 1, done, next, inner, each);
      }
    }
  }
  void GrowInner(size_t depth, uint32_t done, uint32_t end, std::vector<PlannedStage>& stages,
                 const std::function<void(const std::vector<PlannedStage>&)>& visit) {
    Grow(depth, done, end, levels_[depth].machines, stages, visit);
  }

  const LayerProfile& profile_;
  const std::vector<Level>& levels_;
  int32_t most_stages_;
};

void ExpectBest(const LayerProfile& profile, const Rules& rules, const std::vector<Level>& levels,
                const Limits& limits = {}) {
  const SearchContext context;
  const States states(profile.dag, profile.seconds, profile.output, 1000, context);
  ASSERT_TRUE(states.complete());
  Partitioner partitioner(states, StateCosts::Of(profile, states), rules, levels, limits, context);
  partitioner.Run();
  Exhaustive exhaustive(profile, levels, limits.most_stages > 0 ? limits.most_stages : 99);
  const double least = exhaustive.Least(rules);
  if (least == Recurrence::kNever) {
    EXPECT_EQ(partitioner.bottleneck(), least);
    return;
  }
  EXPECT_NEAR(partitioner.bottleneck(), least, 1e-9 * (1 + least));
  const auto stages = partitioner.Stages(1);
  ASSERT_FALSE(stages.empty());
  EXPECT_NEAR(Objective(profile, rules, levels, stages), least, 1e-9 * (1 + least));
  if (limits.most_stages == 0 && levels.size() == 1) {
    EXPECT_EQ(stages.size(), exhaustive.fewest);
  }
}

Rules SomeRules(Rng& rng) {
  Rules rules = Uniform(rng, 0, 1) ? RulesAsCoded() : RulesOfThePaper();
  rules.syncs = Uniform(rng, 0, 1) ? 1 : 0.125;
  return rules;
}

TEST(PipeDreamRecurrenceTest, EqualsExhaustiveSearchOnChains) {
  Rng rng(1);
  for (int i = 0; i < 150; ++i) {
    SCOPED_TRACE(i);
    const LayerProfile profile =
        RandomProfile(rng, Chain(static_cast<int32_t>(Uniform(rng, 1, 6))));
    const std::vector<Level> level = {{static_cast<int32_t>(Uniform(rng, 1, 6)), 7}};
    ExpectBest(profile, SomeRules(rng), level);
  }
}

TEST(PipeDreamRecurrenceTest, EqualsExhaustiveSearchOnBranchesAndSeveralSources) {
  Rng rng(2);
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    const auto layers = static_cast<int32_t>(Uniform(rng, 1, 6));
    const LayerProfile profile = RandomProfile(rng, testing::RandomDag(rng, layers, 0.3));
    const std::vector<Level> level = {{static_cast<int32_t>(Uniform(rng, 1, 4)), 7}};
    ExpectBest(profile, SomeRules(rng), level);
  }
}

TEST(PipeDreamRecurrenceTest, EqualsExhaustiveSearchOnTwoLevels) {
  Rng rng(3);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    const LayerProfile profile =
        RandomProfile(rng, Chain(static_cast<int32_t>(Uniform(rng, 1, 4))));
    const std::vector<Level> levels = {{static_cast<int32_t>(Uniform(rng, 1, 3)), 20},
                                       {static_cast<int32_t>(Uniform(rng, 1, 3)), 3}};
    ExpectBest(profile, SomeRules(rng), levels);
  }
}

TEST(PipeDreamRecurrenceTest, KeepsLimitsOnStages) {
  Rng rng(4);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    const LayerProfile profile =
        RandomProfile(rng, Chain(static_cast<int32_t>(Uniform(rng, 1, 6))));
    const std::vector<Level> level = {{static_cast<int32_t>(Uniform(rng, 1, 6)), 7}};
    Limits limits;
    limits.most_stages = static_cast<int32_t>(Uniform(rng, 1, 3));
    ExpectBest(profile, SomeRules(rng), level, limits);
  }
}

TEST(PipeDreamRecurrenceTest, KeepsMemoryLimits) {
  // Four layers of 10 bytes of weights each; 30 bytes a machine: no stage may have all four.
  LayerProfile profile{Chain(4), {1, 1, 1, 1}, {0, 0, 0, 0}, {0, 0, 0, 0}};
  const SearchContext context;
  const States states(profile.dag, profile.seconds, profile.output, 100, context);
  Limits limits;
  limits.memory.budget = 30;
  limits.memory.resident = states.Sum({10, 10, 10, 10});
  limits.memory.saved_per_sample = states.Sum({0, 0, 0, 0});
  const std::vector<Level> two = {{2, 1}};
  const Rules rules = RulesAsCoded();
  Partitioner pair(states, StateCosts::Of(profile, states), rules, two, limits, context);
  pair.Run();
  EXPECT_DOUBLE_EQ(pair.bottleneck(), 2);  // Not 4 / 2 on both, though that is as fast.
  EXPECT_EQ(pair.Stages(1).size(), 2u);
  limits.memory.budget = 19;
  Partitioner tight(states, StateCosts::Of(profile, states), rules, two, limits, context);
  tight.Run();
  EXPECT_EQ(tight.bottleneck(), Recurrence::kNever);
  EXPECT_TRUE(tight.Stages(1).empty());
}

TEST(PipeDreamRecurrenceTest, VersionsThatAllStagesHoldTakeMemory) {
  // Two layers on two machines of 35 bytes. The first keeps 10 bytes for each of two mini-batches
  // in flight and has 5 bytes of weights: beside the resident ones there is room for two versions.
  LayerProfile profile{Chain(2), {1, 1}, {0, 0}, {5, 0}};
  const SearchContext context;
  const States states(profile.dag, profile.seconds, profile.output, 100, context);
  Limits limits;
  limits.most_replicas = 1;
  limits.memory.budget = 35;
  limits.memory.resident = states.Sum({5, 0});
  limits.memory.saved_per_sample = states.Sum({10, 10});
  limits.memory.versions = 1;
  limits.memory.most_in_flight = 100;
  const std::vector<Level> two = {{2, 1}};
  const Rules rules = RulesAsCoded();
  const auto fits = [&] {
    Partitioner search(states, StateCosts::Of(profile, states), rules, two, limits, context);
    search.Run();
    return search.bottleneck() < Recurrence::kNever;
  };
  for (const double versions : {0, 1, 2, 3}) {
    limits.memory.least_versions = versions;
    EXPECT_EQ(fits(), versions <= 2) << versions;
  }
  limits.memory.budget = 40;
  EXPECT_TRUE(fits());
  // The last stage has one mini-batch in flight, and may hold as many versions nevertheless.
  limits.memory.resident = states.Sum({0, 10});
  profile.parameters = {0, 10};
  limits.memory.least_versions = 2;
  EXPECT_TRUE(fits());
  limits.memory.least_versions = 3;
  EXPECT_FALSE(fits());
}

TEST(PipeDreamRecurrenceTest, FewStatesOfALargeModelStillReachMostOfIt) {
  Rng rng(5);
  const LayerProfile profile = RandomProfile(rng, testing::RandomDag(rng, 40, 0.05));
  const SearchContext context;
  const States states(profile.dag, profile.seconds, profile.output, 300, context);
  EXPECT_FALSE(states.complete());
  EXPECT_LE(states.size(), 300);
  const std::vector<Level> level = {{4, 1e9}};
  const Rules rules = RulesAsCoded();
  const Limits limits;
  Partitioner partitioner(states, StateCosts::Of(profile, states), rules, level, limits, context);
  partitioner.Run();
  const auto stages = partitioner.Stages(1);
  ASSERT_FALSE(stages.empty());
  EXPECT_NEAR(Objective(profile, rules, level, stages), partitioner.bottleneck(), 1e-9);
  double work = 0;
  for (double seconds : profile.seconds) work += seconds;
  EXPECT_LT(partitioner.bottleneck(), 1.05 * work / 4);
}

}  // namespace
}  // namespace stagewright::pipedream
