#include "planner_service/search/none_found.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner_service/search/search_case.h"
#include "tests/support/planning_cases.h"

namespace stagewright {
namespace {

using ::testing::AllOf;
using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledChain;
using testing::SearchCase;

// Parameters and gradients of an operator take 2 GiB.
Graph Heavy(int32_t operators) {
  return ProfiledChain(operators, {kMillisecond, kMillisecond, kKiB, kGiB, {}});
}

TEST(NoneFoundTest, IsInfeasibleWhereNothingCanFit) {
  const SearchCase one(Heavy(1), FlatCluster(4, kGiB), 8);
  const Outcome alone = NoneFound("some", one.problem, "", absl::OkStatus());
  EXPECT_EQ(alone.termination, Termination::kInfeasible);
  EXPECT_THAT(alone.reason, HasSubstr("alone needs"));
  const SearchCase many(Heavy(5), FlatCluster(4, 2 * kGiB + kMiB), 8);
  const Outcome together = NoneFound("some", many.problem, "", absl::OkStatus());
  EXPECT_EQ(together.termination, Termination::kInfeasible);
  EXPECT_THAT(together.reason, HasSubstr("together"));
}

TEST(NoneFoundTest, IsNoProofElsewhere) {
  const SearchCase open(Heavy(3), FlatCluster(2, 3 * kGiB), 8);
  const Outcome outcome = NoneFound("some", open.problem, "short chains",
                                    absl::ResourceExhaustedError("device 1 is full"));
  EXPECT_EQ(outcome.termination, Termination::kLimit);
  EXPECT_FALSE(outcome.strategy);
  EXPECT_THAT(outcome.reason,
              AllOf(HasSubstr("planner 'some' found no plan that fits among short chains"),
                    HasSubstr("does not prove"), HasSubstr("need 6 GiB"),
                    HasSubstr("closest: device 1 is full")));
}

TEST(NoneFoundTest, SpeaksOfMemoryOnlyWhereItBinds) {
  const SearchCase open(Heavy(3), FlatCluster(2, 3 * kGiB), 8);
  const Outcome outcome =
      NoneFound("some", open.problem, "", absl::FailedPreconditionError("C1: node n0"));
  EXPECT_EQ(outcome.reason,
            "planner 'some' found no plan, which does not prove that there is none; closest: C1: "
            "node n0");
}

}  // namespace
}  // namespace stagewright
