#include "planner_service/planners/pipedream/objective.h"

#include <gtest/gtest.h>

namespace stagewright::pipedream {
namespace {

// The paper's T(i -> j, m) = (1/m) max(sum of T_l, sum of W_l^m): compute and synchronisation
// overlap. W^m of 8 bytes at 1 byte a second is 4 (m - 1) / m * 8 s.
TEST(PipeDreamObjectiveTest, StageTimeOfThePaperIsAMaximum) {
  const Rules rules = RulesOfThePaper();
  EXPECT_DOUBLE_EQ(StageSeconds(rules, 10, 8, 1, 1), 10);
  EXPECT_DOUBLE_EQ(StageSeconds(rules, 10, 8, 2, 1), 16.0 / 2);
  EXPECT_DOUBLE_EQ(StageSeconds(rules, 40, 8, 2, 1), 40.0 / 2);
  EXPECT_DOUBLE_EQ(StageSeconds(rules, 10, 8, 4, 1), 24.0 / 4);
}

TEST(PipeDreamObjectiveTest, StageTimeOfTheProgramIsASum) {
  const Rules rules = RulesAsCoded();
  EXPECT_DOUBLE_EQ(StageSeconds(rules, 10, 8, 1, 1), 10);
  EXPECT_DOUBLE_EQ(StageSeconds(rules, 10, 8, 2, 1), (10 + 16.0) / 2);
  EXPECT_DOUBLE_EQ(StageSeconds(rules, 10, 8, 4, 2), (10 + 12.0) / 4);
  EXPECT_DOUBLE_EQ(StageSeconds(rules, 10, 8, 2, 1, /*links=*/8), (10 + 2.0) / 2);
}

TEST(PipeDreamObjectiveTest, TransfersGoBothWays) {
  EXPECT_DOUBLE_EQ(TransferSeconds(RulesOfThePaper(), 6, 3, 2), 6);  // 2 C_i, whoever receives.
  EXPECT_DOUBLE_EQ(TransferSeconds(RulesAsCoded(), 6, 3, 2), 2);     // Shared by the receivers.
}

// NOAM = ceil(machines / machines of the input stage).
TEST(PipeDreamObjectiveTest, NoamCoversTheMachines) {
  EXPECT_EQ(Noam(8, 7), 2);
  EXPECT_EQ(Noam(4, 2), 2);
  EXPECT_EQ(Noam(4, 1), 4);
  EXPECT_EQ(Noam(8, 8), 1);
  EXPECT_EQ(Noam(9, 4), 3);
}

// A diamond of four layers of 1, 2, 3 and 4 s; outputs 10, 20, 30 and 40 bytes.
LayerProfile Diamond() {
  return {*Dag::Create(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}),
          {1, 2, 3, 4},
          {10, 20, 30, 40},
          {5, 0, 0, 8}};
}

TEST(PipeDreamObjectiveTest, ObjectiveIsTheSlowestPart) {
  const LayerProfile profile = Diamond();
  const std::vector<Level> slow = {{3, 10}};
  const std::vector<Level> fast = {{3, 1e9}};
  // Compute decides: 1 + 2, 3, 4.
  EXPECT_NEAR(
      Objective(profile, RulesAsCoded(), fast, {{{0, 1}, 1, {}}, {{2}, 1, {}}, {{3}, 1, {}}}), 4,
      1e-6);
  // Over the cut before layer 3 go the outputs of 1 and 2: 2 * 50 / 10.
  EXPECT_DOUBLE_EQ(Objective(profile, RulesAsCoded(), slow, {{{0, 1, 2}, 1, {}}, {{3}, 1, {}}}),
                   10);
  EXPECT_DOUBLE_EQ(Objective(profile, RulesAsCoded(), slow, {{{0, 1, 2}, 1, {}}, {{3}, 2, {}}}), 6);
  EXPECT_DOUBLE_EQ(Objective(profile, RulesOfThePaper(), slow, {{{0, 1, 2}, 1, {}}, {{3}, 2, {}}}),
                   10);
}

TEST(PipeDreamObjectiveTest, AnOuterLevelSeesPipelinesAsMachines) {
  const LayerProfile profile = Diamond();
  const std::vector<Level> levels = {{2, 1e9}, {2, 10}};
  // Both nodes hold everything: inside 6 s and 4 s, so 6 s; 13 bytes over 4 / 2 / (2 links * 10).
  const std::vector<PlannedStage> inner = {{{0, 1, 2}, 1, {}}, {{3}, 1, {}}};
  const std::vector<PlannedStage> replicated = {{{0, 1, 2, 3}, 2, inner}};
  EXPECT_NEAR(Objective(profile, RulesAsCoded(), levels, replicated), (6 + 2 * 13 / 20.0) / 2,
              1e-6);
  EXPECT_NEAR(Objective(profile, RulesOfThePaper(), levels, replicated), 6 / 2.0, 1e-6);
}

}  // namespace
}  // namespace stagewright::pipedream
