#include "planner_service/search/one_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner_service/search/micro_batch_sizes.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::FlatCluster;
using ::testing::IsEmpty;
using testing::ProfiledChain;
using testing::SearchCase;

// "1x12" for one replica with micro-batches of 12 samples, with an "r" if it recomputes.
std::vector<std::string> Choices(const SearchCase& c, const PlanOptions& options,
                                 RecomputePolicy recompute = RecomputePolicy::kAllowed) {
  const StageOracle oracle(c.problem, ModelOrder(c.problem));
  std::vector<std::string> texts;
  for (const OneStageChoice& choice : OneStageChoices(oracle, options, recompute)) {
    texts.push_back(std::to_string(choice.replicas) + "x" + std::to_string(choice.micro_batch) +
                    (choice.recompute ? "r" : ""));
  }
  return texts;
}

TEST(OneStageTest, HoldsTheWholeModel) {
  const SearchCase c(ProfiledChain(3, {}), FlatCluster(2), 8);
  const Strategy strategy = OneStage(c.problem, {DeviceId(1), DeviceId(0)}, 4);
  ASSERT_EQ(strategy.stages.size(), 1u);
  EXPECT_EQ(strategy.stages[0].nodes.size(), 3u);
  EXPECT_THAT(strategy.stages[0].devices, ElementsAre(DeviceId(1), DeviceId(0)));
  EXPECT_EQ(strategy.stages[0].micro_batch, 4);
  EXPECT_EQ(strategy.stages[0].schedule.in_flight, 4);
  EXPECT_EQ(strategy.mini_batch, 8);
}

TEST(OneStageTest, OnOneDeviceAndOnAllThatGetASample) {
  const SearchCase many(ProfiledChain(3, {}), FlatCluster(4), 12);
  EXPECT_THAT(Choices(many, {}), ElementsAre("1x12", "4x12"));
  EXPECT_THAT(Choices(many, {.micro_batch = 2}), ElementsAre("1x2"));
  EXPECT_THAT(Choices(many, {.allow_replicas = false}), ElementsAre("1x12"));
  EXPECT_THAT(Choices(many, {.num_stages = 2}), IsEmpty());
  const SearchCase few(ProfiledChain(3, {}), FlatCluster(4), 3);
  EXPECT_THAT(Choices(few, {}), ElementsAre("1x3", "3x3"));
}

TEST(OneStageTest, TakesTheLargestMicroBatchThatFits) {
  // Each of four operators keeps a MiB per sample; four samples of all fit.
  const SearchCase c(ProfiledChain(4, {1000, 2000, kMiB, 0, {}}), FlatCluster(2, 20 * kMiB), 12);
  EXPECT_THAT(Choices(c, {}), ElementsAre("1x4", "2x6"));
  EXPECT_THAT(Choices(c, {.micro_batch = 12}, RecomputePolicy::kNever), IsEmpty());
}

TEST(OneStageTest, ProposesWhatItChooses) {
  const SearchCase c(ProfiledChain(3, {}), FlatCluster(4), 12);
  const StageOracle oracle(c.problem, ModelOrder(c.problem));
  PlanOptions options;
  options.asynchronous = true;
  const std::vector<Proposal> proposals = OneStageProposals(oracle, options);
  ASSERT_EQ(proposals.size(), 2u);
  EXPECT_EQ(proposals[0].text, "b12 one stage x1");
  EXPECT_EQ(proposals[1].text, "b12 one stage x4");
  for (const Proposal& proposal : proposals) {
    EXPECT_TRUE(proposal.strategy.asynchronous);
    EXPECT_FALSE(proposal.strategy.stages[0].recompute);
    EXPECT_TRUE(VerdictOn(c.problem, proposal.strategy)->time.has_value());
  }
}

}  // namespace
}  // namespace stagewright
