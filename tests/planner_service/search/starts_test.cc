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
