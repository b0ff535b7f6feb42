#include "planner_service/front_door/planner_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace stagewright {
namespace {

TEST(PlannerTable, MakesEachPlannerByItsName) {
  std::set<std::string> names;
  for (const auto& table : {RegisteredPlanners(), PlannersOnRequest()}) {
    for (const RegisteredPlanner& planner : table) {
      EXPECT_EQ(planner.make()->name(), planner.name);
      EXPECT_TRUE(names.insert(planner.name).second) << planner.name << " twice";
      ASSERT_TRUE(MakePlanner(planner.name).ok()) << planner.name;
      EXPECT_EQ(MakePlanner(planner.name).value()->name(), planner.name);
    }
  }
  for (const char* named : {kDefaultPlanner, kSequentialPlanner, kSinglePlanner, kManualPlanner})
    EXPECT_TRUE(names.contains(named)) << named;
}

TEST(PlannerTable, ListsWhatItKnows) {
  const absl::Status status = MakePlanner("simplex").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  for (const RegisteredPlanner& planner : RegisteredPlanners())
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(planner.name));
}

}  // namespace
}  // namespace stagewright
