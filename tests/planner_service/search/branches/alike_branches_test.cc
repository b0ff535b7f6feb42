#include "planner_service/search/branches/alike_branches.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/topology/uniform.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using testing::ProfiledGraph;
using testing::SearchCase;
using testing::Work;

constexpr int32_t kDevices = 8;

Work After(std::vector<int32_t> after, Nanos forward = 1000) {
  return {forward, 2000, 8, 0, std::move(after)};
}

std::vector<AlikeBranches> AlikeOf(const std::vector<Work>& nodes) {
  const SearchCase c(ProfiledGraph(nodes), *UniformPreset("uniform:8"), 8);
  return FindAlikeBranches(OperatorCosts(c.problem));
}

TEST(AlikeBranchesTest, EqualBranchesAreFoundAndUnlikeOnesAreNot) {
  // 0-1 and 2-3 are equal; 4-5 costs more, and so does its last operator alone of 6-7.
  EXPECT_EQ(AlikeOf({After({}), After({0}), After({}), After({2}), After({}, 3000), After({4}),
                     After({}), After({6}, 3000), After({1, 3, 5, 7})}),
            (std::vector<AlikeBranches>{{{0, 1}, {2, 3}}}));
  EXPECT_TRUE(AlikeOf({After({}), After({}, 3000), After({0, 1})}).empty());
  EXPECT_TRUE(AlikeOf({After({}), After({0}), After({1})}).empty());
}

TEST(AlikeBranchesTest, OutermostSetsAreFound) {
  // Two equal branches, each with two equal ones inside; then a third with two of its own.
  EXPECT_EQ(AlikeOf({After({}), After({0}), After({0}), After({1, 2}), After({}), After({4}),
                     After({4}), After({5, 6}), After({}, 5000), After({8}), After({8}),
                     After({9, 10}), After({3, 7, 11})}),
            (std::vector<AlikeBranches>{{{0, 1, 2, 3}, {4, 5, 6, 7}}, {{9}, {10}}}));
}

// Three equal branches of two operators, 0-1, 2-3 and 4-5, and a join, 6.
class MirrorTest : public ::testing::Test {
 protected:
  std::string Mirrored(std::vector<DraftStage> stages, MirrorTo to) const {
    Draft after{StrategyKind::kGraph, 1, std::move(stages)};
    const Draft unchanged = after;
    if (!Mirror(sets_, before_, to, kDevices, after)) {
      EXPECT_EQ(after, unchanged);
      return "no";
    }
    EXPECT_TRUE(SortStages(case_.problem.operators->dag(), after));
    return ToString(after);
  }

  const SearchCase case_{ProfiledGraph({After({}), After({0}), After({}), After({2}), After({}),
                                        After({4}), After({1, 3, 5})}),
                         *UniformPreset("uniform:8"), 8};
  const std::vector<AlikeBranches> sets_ = FindAlikeBranches(OperatorCosts(case_.problem));
  // The second branch is laid out as the first one is, the third one otherwise.
  const Draft before_{StrategyKind::kGraph,
                      1,
                      {{{0, 1}, {0}, false},
                       {{2, 3}, {2}, false},
                       {{4}, {4}, false},
                       {{5}, {5}, false},
                       {{6}, {6}, false}}};
};

TEST_F(MirrorTest, ABranchIsCutAsTheChangedOneOnDevicesThatCorrespond) {
  const std::vector<DraftStage> cut = {{{0}, {0}, false}, {{1}, {1}, true},  {{2, 3}, {2}, false},
                                       {{4}, {4}, false}, {{5}, {5}, false}, {{6}, {6}, false}};
  EXPECT_EQ(Mirrored(cut, MirrorTo::kAlike), "g b1 | 0@0 | 1@1r | 2@2 | 3@3r | 4@4 | 5@5 | 6@6");
  EXPECT_EQ(Mirrored(cut, MirrorTo::kAll), "g b1 | 0@0 | 1@1r | 2@2 | 3@3r | 4@4 | 5@5r | 6@6");
}

TEST_F(MirrorTest, WhatJoinsAStageOfOthersJoinsItFromAllBranches) {
  EXPECT_EQ(Mirrored({{{0}, {0}, false},
                      {{1, 6}, {6}, false},
                      {{2, 3}, {2}, false},
                      {{4}, {4}, false},
                      {{5}, {5}, false}},
                     MirrorTo::kAlike),
            "g b1 | 0@0 | 2@2 | 4@4 | 5@5 | 1,3,6@6");
}

TEST_F(MirrorTest, NothingHappensWhereSeveralBranchesChangeOrNone) {
  EXPECT_EQ(Mirrored(before_.stages, MirrorTo::kAll), "no");
  std::vector<DraftStage> both = before_.stages;
  std::swap(both[0].devices, both[1].devices);
  EXPECT_EQ(Mirrored(both, MirrorTo::kAll), "no");
  std::vector<DraftStage> join = before_.stages;
  join[4].devices = {7};
  EXPECT_EQ(Mirrored(join, MirrorTo::kAll), "no");
}

TEST_F(MirrorTest, DevicesThatThereAreNotAreNotTaken) {
  std::vector<DraftStage> moved = before_.stages;
  moved[0].devices = {0, 6};  // The second branch would need device 8.
  EXPECT_EQ(Mirrored(moved, MirrorTo::kAlike), "no");
}

}  // namespace
}  // namespace stagewright
