#include "planner_service/search/why_not.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/parameters.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/search_case.h"

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
  const Outcome alone = NoneFound("some", one.problem, {}, {});
  EXPECT_EQ(alone.termination, Termination::kInfeasible);
  EXPECT_THAT(alone.reason, HasSubstr("alone needs"));
  const SearchCase many(Heavy(5), FlatCluster(4, 2 * kGiB + kMiB), 8);
  const Outcome together = NoneFound("some", many.problem, {}, {});
  EXPECT_EQ(together.termination, Termination::kInfeasible);
  EXPECT_THAT(together.reason, HasSubstr("together"));
}

TEST(NoneFoundTest, IsNoProofElsewhere) {
  const SearchCase open(Heavy(3), FlatCluster(2, 3 * kGiB), 8);
  const Outcome outcome = NoneFound(
      "some", open.problem, {},
      {"short chains", "4 devices would do", absl::ResourceExhaustedError("device 1 is full")});
  EXPECT_EQ(outcome.termination, Termination::kLimit);
  EXPECT_FALSE(outcome.strategy);
  EXPECT_THAT(outcome.reason,
              AllOf(HasSubstr("planner 'some' found no plan that fits among short chains"),
                    HasSubstr("does not prove"), HasSubstr("need 6 GiB"),
                    HasSubstr("; 4 devices would do; more devices, devices with more memory or "
                              "planner 'auto' may help; "),
                    HasSubstr("closest: device 1 is full")));
}

TEST(NoneFoundTest, NamesAnOperatorThatForcedMicroBatchesMakeTooLarge) {
  // An operator keeps a MiB per sample.
  SearchCase c(ProfiledChain(2, {kMillisecond, kMillisecond, kMiB, 0, {}}),
               FlatCluster(8, 4 * kMiB), 8);
  c.problem.optimizer = Optimizer::kAdam;
  PlanOptions options;
  options.micro_batch = 8;
  options.allow_replicas = false;
  const Outcome outcome = NoneFound("some", c.problem, options, {});
  EXPECT_THAT(
      outcome.reason,
      AllOf(HasSubstr("operator 'n1' alone needs 24 MiB"), HasSubstr("for 8 samples"),
            HasSubstr("the largest device has 4 MiB"),
            HasSubstr("; devices with more memory, a smaller micro_batch, an optimizer with "
                      "less state (sgd) or planner 'auto' may help")));
  options.allow_replicas = true;
  EXPECT_THAT(NoneFound("auto", c.problem, options, {}).reason,
              AllOf(HasSubstr("together have 32 MiB"), HasSubstr("less state (sgd) may help")));
}

TEST(NoneFoundTest, SpeaksOfMemoryOnlyWhereItBinds) {
  const SearchCase open(Heavy(3), FlatCluster(2, 3 * kGiB), 8);
  for (const auto& closest :
       {absl::FailedPreconditionError("C1: node n0"), absl::AbortedError("C1: node n0")}) {
    const Outcome outcome = NoneFound("some", open.problem, {}, {"", "more devices", closest});
    EXPECT_EQ(outcome.reason,
              "planner 'some' found no plan, which does not prove that there is none; closest: C1: "
              "node n0");
  }
}

TEST(ImpossibleOptionsTest, AStageNeedsAnOperatorAndRoomOnADevice) {
  const SearchCase c(ProfiledChain(5, {}), FlatCluster(2), 8);
  EXPECT_EQ(ImpossibleOptions(c.problem, {}, 1), "");
  EXPECT_EQ(ImpossibleOptions(c.problem, {.num_stages = 2}, 1), "");
  EXPECT_EQ(ImpossibleOptions(c.problem, {.num_stages = 3}, 1),
            "num_stages is 3, but 2 devices with at most 1 stage each have room for 2");
  EXPECT_EQ(ImpossibleOptions(c.problem, {.num_stages = 4}, 2), "");
  EXPECT_EQ(ImpossibleOptions(c.problem, {.num_stages = 5}, 2),
            "num_stages is 5, but 2 devices with at most 2 stages each have room for 4");
  EXPECT_EQ(ImpossibleOptions(c.problem, {.num_stages = 5}, 0), "");
  EXPECT_EQ(ImpossibleOptions(c.problem, {.num_stages = 6}, 0),
            "num_stages is 6, but the graph has only 5 operators that can be separated");
  EXPECT_EQ(ImpossibleOptions(c.problem, {.max_stages = 1, .num_stages = 2}, 1),
            "num_stages is 2, but max_stages is 1");
  EXPECT_EQ(ImpossibleOptions(c.problem, {.micro_batch = 3}, 1),
            "micro_batch 3 does not divide the mini-batch of 8 samples");
}

}  // namespace
}  // namespace stagewright
