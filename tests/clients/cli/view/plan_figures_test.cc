#include "clients/cli/view/plan_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/clients/cli/view/branched_plan.h"

namespace stagewright::cli {
namespace {

TEST(DevicesUsed, CountsADeviceOfSeveralStagesOnce) {
  v1::Strategy strategy = BranchedPlan().best().strategy();
  EXPECT_EQ(DevicesUsed(strategy), 5);
  strategy.mutable_stages(2)->set_devices(0, 2);
  EXPECT_EQ(DevicesUsed(strategy), 4);
}

TEST(PeakMemory, IsThatOfTheFullestDevice) {
  v1::Plan plan;
  EXPECT_EQ(PeakMemory(plan), 0);
  for (const int64_t peak : {3, 7, 5})
    plan.mutable_evaluation()->add_devices()->set_peak_memory_bytes(peak);
  EXPECT_EQ(PeakMemory(plan), 7);
}

TEST(GapRatio, NeedsAPlanAndABound) {
  v1::PlanResponse response = BranchedPlan();
  EXPECT_EQ(GapRatio(response), std::nullopt);
  response.set_lower_bound_ns(1'600'000);
  EXPECT_DOUBLE_EQ(GapRatio(response).value(), 0.25);
  response.clear_best();
  EXPECT_EQ(GapRatio(response), std::nullopt);
}

TEST(TerminationText, IsAWord) {
  EXPECT_EQ(TerminationText(v1::TERMINATION_INFEASIBLE), "infeasible");
}

}  // namespace
}  // namespace stagewright::cli
