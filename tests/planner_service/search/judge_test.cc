#include "planner_service/search/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner_service/evaluator/evaluator.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/search_case.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using testing::SearchCase;

constexpr double kAnyHope = 1e9;

// Two equal nodes in a row on up to two devices, a mini-batch of eight samples.
class JudgeTest : public ::testing::Test {
 protected:
  Proposal OneStage(int64_t micro_batch, double estimate) const {
    return {testing::MakeStrategy(case_.graph, {{0, 1}}, {{0}}, 8, micro_batch), estimate,
            "one b" + std::to_string(micro_batch)};
  }
  Proposal TwoStages(int64_t micro_batch, double estimate) const {
    return {testing::MakeStrategy(case_.graph, {{0}, {1}}, {{0}, {1}}, 8, micro_batch), estimate,
            "two b" + std::to_string(micro_batch)};
  }
  double Seconds(const Strategy& strategy) const {
    return ToSeconds(
        Evaluate(case_.graph, case_.cluster, *case_.costs, strategy, {})->iteration_time);
  }

  const SearchCase case_{testing::ProfiledChain(2, {kMillisecond, 2 * kMillisecond, 0, 0, {}}),
                         testing::FlatCluster(2), 8};
  SearchContext context_;
  Judge judge_{case_.problem, context_};
};

TEST_F(JudgeTest, TheSimulationDecidesAndNotTheEstimate) {
  std::vector<double> improvements;
  context_.on_improvement = [&](const Strategy& better) {
    improvements.push_back(Seconds(better));
  };
  ASSERT_TRUE(
      judge_.Consider({TwoStages(2, 3), OneStage(8, 1), TwoStages(1, 2)}, 9, kAnyHope).ok());
  ASSERT_NE(judge_.best(), nullptr);
  EXPECT_EQ(judge_.best()->stages.size(), 2u);
  EXPECT_EQ(judge_.best()->stages[0].micro_batch, 1);
  EXPECT_EQ(judge_.best_seconds(), Seconds(*judge_.best()));
  EXPECT_EQ(judge_.count(), 3);
  // One stage first, which has the best estimate; two stages of micro-batches of 2 are no better
  // than those of 1.
  ASSERT_EQ(improvements.size(), 2u);
  EXPECT_LT(improvements[1], improvements[0]);
}

TEST_F(JudgeTest, StopsAtTheNumberAskedForAndWhereThereIsNoHope) {
  ASSERT_TRUE(judge_.Consider({TwoStages(1, 0), OneStage(8, 1)}, 1, kAnyHope).ok());
  EXPECT_EQ(judge_.count(), 1);
  const double best = judge_.best_seconds();
  ASSERT_TRUE(judge_.Consider({OneStage(4, best * 1.4), OneStage(2, best * 1.6)}, 9, 1.5).ok());
  EXPECT_EQ(judge_.count(), 2);
}

TEST_F(JudgeTest, EqualTextsAreEvaluatedOnce) {
  ASSERT_TRUE(judge_.Consider({OneStage(8, 0), OneStage(8, 0)}, 9, kAnyHope).ok());
  ASSERT_TRUE(judge_.Consider({OneStage(8, 0)}, 9, kAnyHope).ok());
  EXPECT_EQ(judge_.count(), 1);
}

TEST_F(JudgeTest, AnExpiredContextStopsIt) {
  context_.Cancel();
  ASSERT_TRUE(judge_.Consider({OneStage(8, 0)}, 9, kAnyHope).ok());
  EXPECT_EQ(judge_.count(), 0);
  EXPECT_EQ(judge_.best(), nullptr);
}

TEST_F(JudgeTest, WhatIsInvalidIsTheFirstRejectionAndWhatFitsTheAnswer) {
  Proposal invalid = OneStage(8, 0);
  invalid.strategy.stages[0].nodes.pop_back();  // A node without a stage.
  invalid.text = "invalid";
  ASSERT_TRUE(judge_.Consider({invalid, OneStage(4, 1)}, 9, kAnyHope).ok());
  EXPECT_EQ(judge_.count(), 2);
  EXPECT_THAT(std::string(judge_.rejection().message()), HasSubstr("C1"));
  ASSERT_NE(judge_.best(), nullptr);
  EXPECT_EQ(judge_.best()->stages[0].micro_batch, 4);
}

TEST_F(JudgeTest, AVerdictIsATimeARefusalOrNothing) {
  const Proposal fine = OneStage(8, 0);
  const Verdict accepted = *VerdictOn(case_.problem, fine.strategy);
  ASSERT_TRUE(accepted.time.has_value());
  EXPECT_EQ(ToSeconds(*accepted.time), Seconds(fine.strategy));
  EXPECT_TRUE(accepted.rejection.ok());

  Strategy broken = fine.strategy;
  broken.stages[0].nodes.pop_back();
  const Verdict refused = *VerdictOn(case_.problem, broken);
  EXPECT_FALSE(refused.time.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.rejection));

  const Verdict stopped = *VerdictOn(case_.problem, fine.strategy, [] { return true; });
  EXPECT_FALSE(stopped.time.has_value());
  EXPECT_TRUE(stopped.rejection.ok());
}

TEST_F(JudgeTest, ABriefVerdictIsTheSame) {
  const Proposal fine = TwoStages(2, 0);
  const Verdict whole = *VerdictOn(case_.problem, fine.strategy);
  const Verdict brief = *SearchVerdictOn(case_.problem, fine.strategy);
  EXPECT_EQ(brief.time, whole.time);
  EXPECT_EQ(brief.peak, whole.peak);

  Strategy broken = fine.strategy;
  broken.stages[0].nodes.clear();
  EXPECT_TRUE(absl::IsFailedPrecondition(SearchVerdictOn(case_.problem, broken)->rejection));
}

TEST(JudgeMemoryTest, AVerdictOnWhatDoesNotFitSaysHowMuchIsMissing) {
  const SearchCase small(testing::ProfiledChain(2, {10, 20, 0, kMiB, {}}),
                         testing::FlatCluster(2, 3 * kMiB), 8);
  const Strategy one = testing::MakeStrategy(small.graph, {{0, 1}}, {{0}}, 8, 8);
  const Verdict refused = *VerdictOn(small.problem, one);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.rejection));
  EXPECT_THAT(std::string(refused.rejection.message()), HasSubstr("needs 4 MiB but has 3 MiB"));
}

TEST(JudgeMemoryTest, WhatDoesNotFitIsPassedOver) {
  const SearchCase small(testing::ProfiledChain(2, {10, 20, 0, kMiB, {}}),
                         testing::FlatCluster(2, 3 * kMiB), 8);
  SearchContext context;
  Judge judge(small.problem, context);
  const Strategy one = testing::MakeStrategy(small.graph, {{0, 1}}, {{0}}, 8, 8);
  const Strategy two = testing::MakeStrategy(small.graph, {{0}, {1}}, {{0}, {1}}, 8, 8);
  ASSERT_TRUE(judge.Consider({{one, 0, "one"}}, 9, kAnyHope).ok());
  EXPECT_EQ(judge.best(), nullptr);
  EXPECT_THAT(std::string(judge.rejection().message()), HasSubstr("needs 4 MiB but has 3 MiB"));
  ASSERT_TRUE(judge.Consider({{two, 0, "two"}}, 9, kAnyHope).ok());
  ASSERT_NE(judge.best(), nullptr);
  EXPECT_EQ(judge.best()->stages.size(), 2u);
}

TEST_F(JudgeTest, ProposalsForAViewAreJudgedOnItsDevices) {
  ClusterData data = case_.cluster.data();
  std::swap(data.devices[0], data.devices[1]);
  const PlacementView view{"a view", *Cluster::Create(data), {DeviceId(1), DeviceId(0)}};
  std::vector<Strategy> improvements;
  context_.on_improvement = [&](const Strategy& better) { improvements.push_back(better); };
  Judge own(judge_, &view);
  ASSERT_TRUE(own.Consider({OneStage(8, 0)}, 9, kAnyHope).ok());
  ASSERT_NE(judge_.best(), nullptr);
  EXPECT_EQ(judge_.best()->stages[0].devices, std::vector<DeviceId>{DeviceId(1)});
  EXPECT_EQ(judge_.best_seconds(), own.best_seconds());
  EXPECT_EQ(judge_.count(), 1);
  ASSERT_EQ(improvements.size(), 1u);

  // Another view starts from nothing, but only what is better than all before is an improvement.
  Judge other(judge_, nullptr);
  EXPECT_EQ(other.best(), nullptr);
  ASSERT_TRUE(other.Consider({OneStage(8, 0), TwoStages(1, 1)}, 9, kAnyHope).ok());
  EXPECT_EQ(judge_.count(), 3);
  EXPECT_EQ(judge_.best()->stages.size(), 2u);
  EXPECT_EQ(improvements.size(), 2u);
}

}  // namespace
}  // namespace stagewright
