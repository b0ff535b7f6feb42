#include "clients/cli/view/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/clients/cli/view/branched_plan.h"

namespace stagewright::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlanText, ShowsTheGraphOfStagesAndALineForEach) {
  const std::string text = PlanText(BranchedPlan(), BranchedNames());
  EXPECT_THAT(text, HasSubstr("net: 3 stages, depth 2\n"));
  EXPECT_THAT(text, HasSubstr("  in  [0] -> 2   [1] -> 2\n  out [2]\n"));
  EXPECT_THAT(text, HasSubstr("[0]    a.0 .. a.2  node0/gpu[0-2]  1F1B"));
  EXPECT_THAT(text, HasSubstr("[1]    b.0         node0/gpu3      1F1B"));
  EXPECT_THAT(text, HasSubstr("[2]    2 nodes     node1/gpu0      1F1B"));
  EXPECT_THAT(text, HasSubstr("graph (GPP)"));
  EXPECT_THAT(text, Not(HasSubstr("no plan")));
}

TEST(PlanText, ComparesWithOneDeviceAndTheBound) {
  v1::PlanResponse response = BranchedPlan();
  for (int i = 0; i < 2; ++i) response.mutable_best()->mutable_evaluation()->add_devices();
  response.set_one_device_ns(5'000'000);
  response.set_lower_bound_ns(1'600'000);
  std::string text = PlanText(response, BranchedNames());
  EXPECT_THAT(text, HasSubstr(": 2.50x\n"));
  EXPECT_THAT(text, HasSubstr("this one takes 25.0 % more\n"));
  response.set_one_device_ns(2'000'000);
  EXPECT_THAT(PlanText(response, BranchedNames()), HasSubstr(": it does not pay\n"));
}

TEST(PlanText, SaysWhyThereIsNoPlan) {
  v1::PlanResponse response;
  response.set_termination(v1::TERMINATION_INFEASIBLE);
  response.set_reason("no memory");
  EXPECT_EQ(PlanText(response, {}), "no plan (infeasible): no memory\n");
}

}  // namespace
}  // namespace stagewright::cli
