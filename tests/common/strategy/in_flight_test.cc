// GraphPipe's table of appendix A.1 and what the paper says follows from it.
#include "common/strategy/in_flight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/layer_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ChainGraph;
using ::testing::ElementsAre;
using testing::LinearGraph;
using testing::MakeStages;
using testing::StageSpec;

std::vector<int64_t> InFlight(const Strategy& strategy) {
  std::vector<int64_t> samples;
  for (const Stage& stage : strategy.stages) samples.push_back(stage.schedule.in_flight);
  return samples;
}

struct Row {
  int64_t k_x, b_x, k_y, b_y;
  int64_t more;  // The answer less i_y, which is 100.
};

class TableA1 : public ::testing::TestWithParam<Row> {};

TEST_P(TableA1, IsAsPrinted) {
  const Row row = GetParam();
  EXPECT_EQ(ComputeInFlight(row.k_x, row.b_x, row.k_y, row.b_y, 100), 100 + row.more);
}

INSTANTIATE_TEST_SUITE_P(Row1, TableA1, ::testing::Values(Row{4, 1, 8, 2, 4}, Row{2, 4, 16, 1, 8}));
INSTANTIATE_TEST_SUITE_P(Row2, TableA1, ::testing::Values(Row{2, 2, 2, 4, 4}, Row{1, 4, 8, 1, 4}));
INSTANTIATE_TEST_SUITE_P(Row3, TableA1,
                         ::testing::Values(Row{16, 1, 2, 4, 16}, Row{4, 2, 2, 2, 8}));
INSTANTIATE_TEST_SUITE_P(Row4, TableA1, ::testing::Values(Row{8, 1, 1, 4, 8}, Row{3, 4, 1, 4, 12}));
INSTANTIATE_TEST_SUITE_P(Row5, TableA1, ::testing::Values(Row{4, 4, 8, 1, 16}));
INSTANTIATE_TEST_SUITE_P(Row6, TableA1, ::testing::Values(Row{2, 4, 4, 1, 8}));
INSTANTIATE_TEST_SUITE_P(Row7, TableA1,
                         ::testing::Values(Row{1, 4, 1, 4, 4}, Row{4, 1, 1, 4, 4},
                                           Row{1, 4, 4, 1, 4}));
INSTANTIATE_TEST_SUITE_P(Row8, TableA1, ::testing::Values(Row{8, 1, 4, 2, 4}, Row{2, 2, 4, 1, 4}));
INSTANTIATE_TEST_SUITE_P(Row9, TableA1, ::testing::Values(Row{1, 1, 1, 2, 2}, Row{2, 1, 2, 4, 4}));
INSTANTIATE_TEST_SUITE_P(Row10, TableA1,
                         ::testing::Values(Row{1, 4, 1, 2, 6}, Row{2, 4, 2, 1, 10}));

TEST(ComputeInFlight, CoversEveryCombinationWithEnoughToWorkOn) {
  for (int64_t k_x = 1; k_x <= 4; ++k_x) {
    for (int64_t b_x = 1; b_x <= 6; ++b_x) {
      for (int64_t k_y = 1; k_y <= 4; ++k_y) {
        for (int64_t b_y = 1; b_y <= 6; ++b_y) {
          const int64_t more = ComputeInFlight(k_x, b_x, k_y, b_y, 0);
          // At least one more micro-batch of either stage is under way.
          EXPECT_GE(more, std::max(b_x, b_y)) << k_x << ' ' << b_x << ' ' << k_y << ' ' << b_y;
        }
      }
    }
  }
}

TEST(AssignInFlight, Sequential1F1BRunsNPlus1MinusIForwardsAtStageI) {
  for (int32_t n = 1; n <= 8; ++n) {
    std::vector<StageSpec> specs;
    for (int32_t i = 0; i < n; ++i) specs.push_back({{i}, {i}, 2});
    specs.back().nodes.push_back(n);
    const Strategy strategy = MakeStages(ChainGraph(n), 64, specs);
    for (int32_t i = 1; i <= n; ++i)
      EXPECT_EQ(strategy.stages[i - 1].schedule.in_flight, 2 * (n + 1 - i));
  }
}

TEST(AssignInFlight, Figure2HoldsHalfInDepthTwo) {
  const Graph graph = LinearGraph({{}, {}, {}, {0, 1, 2}});
  const std::vector<StageSpec> specs = {{{0}, {0}}, {{1}, {1}}, {{2}, {2}}, {{3, 4}, {3}}};
  const Strategy gpp = MakeStages(graph, 8, specs);
  EXPECT_EQ(Depth(*StageGraph(gpp)), 2);
  EXPECT_THAT(InFlight(gpp), ElementsAre(2, 2, 2, 1));
  const Strategy spp = MakeStages(graph, 8, specs, StrategyKind::kSequential);
  EXPECT_EQ(Depth(*StageGraph(spp)), 4);
  EXPECT_THAT(InFlight(spp), ElementsAre(4, 3, 2, 1));
}

TEST(AssignInFlight, Figure5NeedsTenSamplesInsteadOfTwelve) {
  const Graph graph = ChainGraph(3);
  EXPECT_THAT(InFlight(MakeStages(graph, 32, {{{0}, {0}, 4}, {{1}, {1}, 4}, {{2, 3}, {2}, 4}})),
              ElementsAre(12, 8, 4));
  EXPECT_THAT(InFlight(MakeStages(graph, 32, {{{0}, {0}, 1}, {{1}, {1}, 2}, {{2, 3}, {2}, 4}})),
              ElementsAre(10, 8, 4));
}

TEST(AssignInFlight, TakesTheLargestOverTheSuccessorsAndStopsAtTheMiniBatch) {
  // 0 feeds 1 and 3; 1 -> 2 -> 3.
  const Graph graph = LinearGraph({{}, {0}, {1}, {0, 2}});
  const std::vector<StageSpec> specs = {{{0}, {0}}, {{1}, {1}}, {{2}, {2}}, {{3, 4}, {3}}};
  EXPECT_THAT(InFlight(MakeStages(graph, 8, specs)), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(InFlight(MakeStages(graph, 3, specs)), ElementsAre(3, 3, 2, 1));
}

TEST(AssignInFlight, RoundsUpToWholeMicroBatches) {
  const Strategy strategy = MakeStages(ChainGraph(2), 60, {{{0}, {0}, 3, 2}, {{1, 2}, {1}, 5}});
  // Row 4: 5 + 6 = 11, which is not a multiple of 3.
  EXPECT_THAT(InFlight(strategy), ElementsAre(12, 5));
}

TEST(SamplesInFlight, FollowEveryEdgeOfTheStages) {
  // 0 feeds 1 and 3; 1 -> 2 -> 3.
  const std::vector<StageEdge> edges = {{StageId(0), StageId(1)},
                                        {StageId(0), StageId(3)},
                                        {StageId(1), StageId(2)},
                                        {StageId(2), StageId(3)}};
  const std::vector<StageRound> single(4, StageRound{2, 1});
  EXPECT_THAT(SamplesInFlight(single, edges, 64), ElementsAre(8, 6, 4, 2));
  EXPECT_THAT(SamplesInFlight(single, edges, 6), ElementsAre(6, 6, 4, 2));
  EXPECT_THAT(SamplesInFlight(single, {}, 64), ElementsAre(2, 2, 2, 2));
}

}  // namespace
}  // namespace stagewright
