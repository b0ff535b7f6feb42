#include "planner_service/planners/dapple/search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner_service/planners/dapple/network.h"
#include "tests/support/random.h"

namespace stagewright::dapple {
namespace {

using testing::Rng;
using testing::Uniform;

ChainCosts RandomChain(Rng& random, int32_t layers) {
  ChainCosts costs;
  costs.forward = costs.backward = {{0}};
  costs.least = costs.parameters = costs.boundary = {0};
  for (int32_t l = 0; l < layers; ++l) {
    costs.forward[0].push_back(costs.forward[0].back() + Uniform(random, 0, 9) * 1e-3);
    costs.backward[0].push_back(costs.backward[0].back() + Uniform(random, 0, 18) * 1e-3);
    costs.least.push_back(costs.forward[0].back() + costs.backward[0].back());
    costs.parameters.push_back(costs.parameters.back() + Uniform(random, 0, 40) * 1e6);
    costs.boundary.push_back(l + 1 < layers ? Uniform(random, 0, 5) * 1e6 : 0);
  }
  return costs;
}

// Every plan that the policies allow, the last stage on all devices that are left.
void Visit(const ChainCosts& costs, const Network& network, Placements& placements,
           const SearchOptions& options, int32_t begin, int32_t occupancy,
           std::vector<ChainStage>& stages, double& least) {
  const int32_t left = placements.size() - placements.Used(occupancy);
  if (left < 1) return;
  for (const Placements::Choice choice : placements.Next(occupancy, left)) {
    stages.push_back({begin, costs.size(), choice.devices});
    least = std::min(least, LatencyOf(costs, network, placements, options, stages));
    stages.pop_back();
  }
  for (int32_t end = begin + 1; end < costs.size(); ++end) {
    for (int32_t count = 1; count < left; ++count) {
      const auto choices = placements.Next(occupancy, count);
      for (const Placements::Choice& choice : choices) {
        stages.push_back({begin, end, choice.devices});
        Visit(costs, network, placements, options, end, choice.occupancy, stages, least);
        stages.pop_back();
      }
    }
  }
}

// Random chains, searched with many labels a state and with one.
void CompareWithExhaustiveSearch(uint64_t seed, PivotSum pivot_sum, Ranking other) {
  Rng random(seed);
  int equal_when_narrow = 0;
  constexpr int kCases = 40;
  for (int i = 0; i < kCases; ++i) {
    SCOPED_TRACE(i);
    const ChainCosts costs = RandomChain(random, static_cast<int32_t>(Uniform(random, 1, 6)));
    const std::vector<int32_t> nodes = {static_cast<int32_t>(Uniform(random, 1, 3)),
                                        static_cast<int32_t>(Uniform(random, 1, 3))};
    const CodedNetwork network(nodes);
    Placements placements(nodes);
    SearchOptions options;
    options.pivot_sum = pivot_sum;
    options.ranking = Uniform(random, 0, 1) ? Ranking::kPaper : other;
    options.micro_batches = Uniform(random, 1, 6);
    options.width = 1000;
    const SearchContext context;
    const SearchResult wide = SearchChain(costs, network, placements, options, context);
    options.width = 1;  // As in the paper.
    const SearchResult narrow = SearchChain(costs, network, placements, options, context);
    double least = std::numeric_limits<double>::infinity();
    std::vector<ChainStage> stages;
    Visit(costs, network, placements, options, 0, Placements::kEmpty, stages, least);
    ASSERT_FALSE(wide.plans.empty());
    EXPECT_NEAR(wide.plans[0].latency, least, 1e-12);
    EXPECT_NEAR(LatencyOf(costs, network, placements, options, wide.plans[0].stages), least, 1e-12);
    ASSERT_FALSE(narrow.plans.empty());
    EXPECT_GE(narrow.plans[0].latency, least - 1e-12);
    equal_when_narrow += narrow.plans[0].latency <= least * (1 + 1e-9);
  }
  // One label a state is a heuristic, and a good one.
  EXPECT_GE(equal_when_narrow, kCases * 3 / 4);
}

TEST(DappleSearchTest, WideSearchEqualsExhaustiveSearch) {
  CompareWithExhaustiveSearch(7, PivotSum::kAfterBackward, Ranking::kCoded);
}

TEST(DappleSearchTest, WideSearchEqualsExhaustiveSearchByThePrintedFormula) {
  CompareWithExhaustiveSearch(17, PivotSum::kAsPrinted, Ranking::kPaper);
}

TEST(DappleSearchTest, PlansAreSortedAndDifferent) {
  Rng random(8);
  const ChainCosts costs = RandomChain(random, 8);
  const CodedNetwork network({2, 2});
  Placements placements(std::vector<int32_t>{2, 2});
  SearchOptions options;
  options.micro_batches = 8;
  const SearchResult found = SearchChain(costs, network, placements, options, SearchContext());
  ASSERT_EQ(found.plans.size(), options.keep);
  for (size_t i = 1; i < found.plans.size(); ++i) {
    EXPECT_LE(found.plans[i - 1].latency, found.plans[i].latency);
  }
}

TEST(DappleSearchTest, KeepsLimits) {
  Rng random(9);
  const ChainCosts costs = RandomChain(random, 8);
  const CodedNetwork network({2, 2});
  Placements placements(std::vector<int32_t>{2, 2});
  SearchOptions options;
  options.micro_batches = 8;
  for (int32_t stages = 1; stages <= 4; ++stages) {
    options.most_stages = stages;
    options.exact_stages = true;
    const SearchResult found = SearchChain(costs, network, placements, options, SearchContext());
    ASSERT_FALSE(found.plans.empty());
    for (const ChainPlan& plan : found.plans) {
      EXPECT_EQ(static_cast<int32_t>(plan.stages.size()), stages);
    }
  }
  options.most_stages = 0;
  options.exact_stages = false;
  options.most_replicas = 1;
  for (const ChainPlan& plan :
       SearchChain(costs, network, placements, options, SearchContext()).plans) {
    for (const ChainStage& stage : plan.stages) {
      EXPECT_EQ(placements.Devices(stage.devices).size(), 1u);
    }
  }
  options.fits = [](int32_t begin, int32_t end, int32_t) { return end - begin <= 2; };
  const SearchResult tight = SearchChain(costs, network, placements, options, SearchContext());
  ASSERT_FALSE(tight.plans.empty());
  EXPECT_EQ(tight.plans[0].stages.size(), 4u);
  options.fits = [](int32_t, int32_t, int32_t) { return false; };
  EXPECT_TRUE(SearchChain(costs, network, placements, options, SearchContext()).plans.empty());
}

}  // namespace
}  // namespace stagewright::dapple
