#include "planner_service/planners/dapple/placement.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace stagewright::dapple {
namespace {

std::vector<int32_t> Numbers(const Placements& placements, const Placements::Choice& choice) {
  std::vector<int32_t> numbers;
  for (DeviceId device : placements.Devices(choice.devices)) numbers.push_back(device.value());
  return numbers;
}

using Devices = std::vector<int32_t>;

// Figure 5's setting: three machines of four devices, of which the first has one in use and the
// second is full of holes.
TEST(DapplePlacementTest, ThePoliciesTakeWhatTheyAreNamedAfter) {
  Placements placements({4, 4, 4});
  Placements::Choice first;
  ASSERT_TRUE(placements.Choose(Placements::kEmpty, 2, Policy::kFreshFirst, first));
  EXPECT_EQ(Numbers(placements, first), (Devices{0, 1}));
  EXPECT_EQ(placements.Used(first.occupancy), 2);
  Placements::Choice next;
  ASSERT_TRUE(placements.Choose(first.occupancy, 2, Policy::kAppendFirst, next));
  EXPECT_EQ(Numbers(placements, next), (Devices{2, 3}));
  ASSERT_TRUE(placements.Choose(first.occupancy, 2, Policy::kFreshFirst, next));
  EXPECT_EQ(Numbers(placements, next), (Devices{4, 5}));
  // Two machines are used now: scatter takes from them in turn.
  ASSERT_TRUE(placements.Choose(next.occupancy, 3, Policy::kScatterFirst, next));
  EXPECT_EQ(Numbers(placements, next), (Devices{2, 3, 6}));
}

TEST(DapplePlacementTest, ScatterTakesFromAllMachinesIfTheUsedOnesHaveTooFew) {
  Placements placements({2, 2, 2});
  Placements::Choice choice;
  ASSERT_TRUE(placements.Choose(Placements::kEmpty, 3, Policy::kScatterFirst, choice));
  EXPECT_EQ(Numbers(placements, choice), (Devices{0, 2, 4}));
  ASSERT_TRUE(placements.Choose(Placements::kEmpty, 1, Policy::kFreshFirst, choice));
  ASSERT_TRUE(placements.Choose(choice.occupancy, 3, Policy::kScatterFirst, choice));
  EXPECT_EQ(Numbers(placements, choice), (Devices{1, 2, 4}));
}

TEST(DapplePlacementTest, APolicyMayHaveNoAnswer) {
  Placements placements({2, 2});
  Placements::Choice choice;
  EXPECT_FALSE(placements.Choose(Placements::kEmpty, 1, Policy::kAppendFirst, choice));
  ASSERT_TRUE(placements.Choose(Placements::kEmpty, 2, Policy::kScatterFirst, choice));
  EXPECT_FALSE(placements.Choose(choice.occupancy, 1, Policy::kFreshFirst, choice));
  EXPECT_FALSE(placements.Choose(choice.occupancy, 3, Policy::kScatterFirst, choice));
  EXPECT_TRUE(placements.Next(choice.occupancy, 3).empty());
}

TEST(DapplePlacementTest, EqualSetsAreOneChoice) {
  Placements placements({4});
  EXPECT_EQ(placements.Next(Placements::kEmpty, 3).size(), 1u);
  Placements nodes({4, 4});
  EXPECT_EQ(nodes.Next(Placements::kEmpty, 3).size(), 2u);  // 0 1 2 and 0 1 4.
}

}  // namespace
}  // namespace stagewright::dapple
