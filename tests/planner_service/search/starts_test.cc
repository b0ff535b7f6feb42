#include "planner_service/search/starts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/topology/uniform.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using ::testing::Contains;
using testing::SearchCase;
using testing::Work;

std::vector<std::string> Texts(const SearchCase& c, const PlanOptions& options, StrategyKind kind) {
  std::vector<std::string> texts;
  for (const Draft& draft : StartDrafts(OperatorCosts(c.problem), options, kind, SearchContext())) {
    texts.push_back(ToString(draft));
  }
  return texts;
}

TEST(StartsTest, BranchesGetDevicesOfTheirOwn) {
  // Two branches of two operators and a light join.
  std::vector<Work> nodes(5, {1000, 2000, 0, 0, {}});
  nodes[1].after = {0};
  nodes[3].after = {2};
  nodes[4] = {100, 200, 0, 0, {1, 3}};
  const SearchCase two(testing::ProfiledGraph(nodes), *UniformPreset("uniform:2"), 2);
  EXPECT_THAT(Texts(two, {}, StrategyKind::kGraph), Contains("g b1 | 0-1@0 | 2-3@1 | 4@0"));
  const SearchCase four(testing::ProfiledGraph(nodes), *UniformPreset("uniform:4"), 2);
  EXPECT_THAT(Texts(four, {}, StrategyKind::kGraph),
              Contains("g b1 | 0@0 | 1@1 | 2@2 | 3@3 | 4@0"));
}

TEST(StartsTest, JoinsAreSpreadOverNodesOrAllDevices) {
  // Two branches and a join, on two nodes of two devices.
  std::vector<Work> nodes(3, {1000, 2000, 0, 0, {}});
  nodes[2] = {100, 200, 0, 0, {0, 1}};
  const SearchCase c(testing::ProfiledGraph(nodes), *UniformPreset("uniform:2x2"), 4);
  const std::vector<std::string> texts = Texts(c, {}, StrategyKind::kGraph);
  EXPECT_THAT(texts, Contains("g b4 | 0@0 | 1@2 | 2@1,3"));
  EXPECT_THAT(texts, Contains("g b4 | 0@0 | 1@2 | 2@0,1,2,3"));
  // Not where a micro-batch has fewer samples.
  EXPECT_THAT(texts, ::testing::Not(Contains("g b1 | 0@0 | 1@2 | 2@1,3")));
}

TEST(StartsTest, LightBranchesHaveSingleDevicesWhereAJoinUsesThoseOfOthers) {
  // Three heavy branches of two operators, two light ones and a join, on two nodes of four devices.
  std::vector<Work> nodes(9, {1000, 2000, 0, 0, {}});
  for (size_t branch = 0; branch < 3; ++branch) {
    nodes[2 * branch + 1].after = {static_cast<int32_t>(2 * branch)};
  }
  nodes[6] = nodes[7] = {100, 200, 0, 0, {}};
  nodes[8] = {100, 200, 0, 0, {1, 3, 5, 6, 7}};
  const SearchCase c(testing::ProfiledGraph(nodes), *UniformPreset("uniform:2x4"), 4);
  EXPECT_THAT(Texts(c, {}, StrategyKind::kGraph),
              Contains("g b4 | 0-1@0,1 | 2-3@2,3 | 4-5@4,5 | 6@6 | 7@7 | 8@3,7"));
}

TEST(StartsTest, BranchesThatDevicesDoNotDivideArePacked) {
  // Five branches and a join without work on four devices: the lightest branch needs two of them.
  std::vector<Work> nodes(6, {5000, 10000, 0, 0, {}});
  nodes[4] = {4000, 8000, 0, 0, {}};
  nodes[5] = {0, 0, 0, 0, {0, 1, 2, 3, 4}};
  const SearchCase c(testing::ProfiledGraph(nodes), *UniformPreset("uniform:4"), 12);
  const std::string packed = "g b12 | 0@0 | 1@1 | 2@2 | 3@3 | 4@0,1 | 5@2";
  EXPECT_THAT(Texts(c, {}, StrategyKind::kGraph), Contains(packed));
  PlanOptions options;
  options.allow_replicas = false;
  EXPECT_THAT(Texts(c, options, StrategyKind::kGraph), ::testing::Not(Contains(packed)));
}

TEST(StartsTest, AChainOnAllDevicesIsCutIntoManySlices) {
  const SearchCase c(testing::ProfiledChain(16, {1000, 2000, 0, 0, {}}),
                     *UniformPreset("uniform:2"), 2);
  std::vector<size_t> slices;
  for (const Draft& draft : StartDrafts(OperatorCosts(c.problem), PlanOptions(),
                                        StrategyKind::kSequential, SearchContext())) {
    if (draft.stages.front().devices.size() == 2) slices.push_back(draft.stages.size());
  }
  EXPECT_THAT(slices, ::testing::IsSupersetOf({1u, 2u, 4u, 8u, 16u}));
}

TEST(StartsTest, NoDraftHasMoreMicroBatchesThanAskedFor) {
  const SearchCase c(testing::ProfiledChain(8, {1000, 2000, 0, 0, {}}), *UniformPreset("uniform:2"),
                     8);
  const auto drafts = StartDrafts(OperatorCosts(c.problem), PlanOptions(), StrategyKind::kGraph,
                                  SearchContext(), /*most_micro_batches=*/2);
  ASSERT_FALSE(drafts.empty());
  for (const Draft& draft : drafts) EXPECT_GE(draft.micro_batch, 4);
}

TEST(StartsTest, FewerDevicesThanBranchesShareThem) {
  std::vector<Work> nodes(7, {1000, 2000, 0, 0, {}});
  nodes[6] = {1, 2, 0, 0, {0, 1, 2, 3, 4, 5}};
  const SearchCase c(testing::ProfiledGraph(nodes), *UniformPreset("uniform:3"), 1);
  for (const Draft& draft : StartDrafts(OperatorCosts(c.problem), PlanOptions(),
                                        StrategyKind::kGraph, SearchContext())) {
    std::vector<int> count(3, 0);
    for (const DraftStage& stage : draft.stages) {
      if (stage.operators.front() < 6) {
        count[stage.devices.front()] += static_cast<int>(stage.operators.size());
      }
    }
    EXPECT_THAT(count, ::testing::Each(::testing::AllOf(::testing::Ge(1), ::testing::Le(3))));
  }
}

// Two devices share samples, the third has operators of its own, half as many.
TEST(StartsTest, DevicesThatAreLeftAreASmallerGroup) {
  const SearchCase c(testing::ProfiledChain(6, {1000, 2000, 0, 0, {}}), *UniformPreset("uniform:3"),
                     4);
  std::vector<std::string> texts;
  for (const Draft& draft :
       StartDrafts(OperatorCosts(c.problem), PlanOptions(), StrategyKind::kSequential,
                   SearchContext(), /*most_micro_batches=*/1, /*with_rest=*/true)) {
    texts.push_back(ToString(draft));
  }
  EXPECT_THAT(texts, Contains("s b4 | 0-3@0,1 | 4-5@2"));
}

TEST(StartsTest, WhereNoDeviceIsLeftTheStartsAreAsEver) {
  const SearchCase c(testing::ProfiledChain(6, {1000, 2000, 0, 0, {}}), *UniformPreset("uniform:2"),
                     4);
  const OperatorCosts costs(c.problem);
  EXPECT_EQ(StartDrafts(costs, PlanOptions(), StrategyKind::kGraph, SearchContext(),
                        /*most_micro_batches=*/4, /*with_rest=*/true),
            StartDrafts(costs, PlanOptions(), StrategyKind::kGraph, SearchContext(),
                        /*most_micro_batches=*/4));
}

TEST(StartsTest, AChainIsCutIntoLoops) {
  const SearchCase c(testing::ProfiledChain(8, {1000, 2000, 0, 0, {}}), *UniformPreset("uniform:2"),
                     1);
  const std::vector<std::string> texts = Texts(c, {}, StrategyKind::kSequential);
  EXPECT_THAT(texts, Contains("s b1 | 0-3@0 | 4-7@1"));
  EXPECT_THAT(texts, Contains("s b1 | 0-1@0 | 2-3@1 | 4-5@0 | 6-7@1"));
  EXPECT_THAT(texts, Contains("s b1 | 0-1@0 | 2-3@1 | 4-5@1 | 6-7@0"));
  PlanOptions three;
  three.num_stages = 3;
  for (const Draft& draft :
       StartDrafts(OperatorCosts(c.problem), three, StrategyKind::kGraph, SearchContext())) {
    EXPECT_EQ(draft.stages.size(), 3u);
  }
}

}  // namespace
}  // namespace stagewright
