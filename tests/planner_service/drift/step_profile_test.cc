#include "planner_service/drift/step_profile.h"

#include <gtest/gtest.h>

#include "common/cost/measured/operator_signature.h"
#include "tests/planner_service/drift/drift_case.h"

namespace stagewright {
namespace {

using testing::DriftCase;

TEST(StepProfileTest, OperatorsThatAreAlikeAreOne) {
  const DriftCase c;
  const ProfiledDevice cpu = {"cpu", "torch, 1 thread"};
  const std::string inner = SignatureOf(c.graph, NodeId(1));
  ASSERT_EQ(inner, SignatureOf(c.graph, NodeId(2)));
  const OperatorProfile profile = ProfileOfSteps(
      c.graph, c.cluster, *c.costs,
      {{DeviceId(0), StageId(0), NodeId(1), 4, 100, 300},
       {DeviceId(1), StageId(1), NodeId(2), 4, 200, 100},
       {DeviceId(1), StageId(1), NodeId(2), 2, 60, 80},
       {DeviceId(2), StageId(1), NodeId(2), 4, 900'000, 900'000}},
      {{DeviceId(0), cpu}, {DeviceId(1), cpu}}, "jobs/7", "2026-11-22");  // Not of the third.
  ASSERT_EQ(profile.devices.size(), 1u);
  const MeasuredOperators& operators = profile.devices.at(cpu);
  ASSERT_EQ(operators.size(), 1u);
  const MeasuredOperator& one = operators.at(inner);
  EXPECT_EQ(one.job, "jobs/7");
  EXPECT_EQ(one.measured_on, "2026-11-22");
  ASSERT_EQ(one.samples.size(), 2u);
  EXPECT_EQ(one.samples[0].samples, 2);
  EXPECT_EQ(one.samples[0].forward, 60);
  EXPECT_EQ(one.samples[1].forward, 150);
  EXPECT_EQ(one.samples[1].backward, 200);
  EXPECT_GT(one.samples[1].backward_input, 0);
  EXPECT_GT(one.samples[1].backward_weight, 0);
  EXPECT_TRUE(Check(profile).ok());
}

}  // namespace
}  // namespace stagewright
