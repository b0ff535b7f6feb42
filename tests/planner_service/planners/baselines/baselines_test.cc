#include "planner_service/planners/baselines/baselines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledChain;

class BaselinesTest : public ::testing::Test {
 protected:
  Outcome Solve(const Planner& planner, const Graph& graph, const Cluster& cluster,
                int64_t mini_batch) {
    const OperatorGraph operators = OneOperatorPerNode(graph).value();
    const auto costs = MakeAnalyticCostModel(graph);
    SearchContext context;
    const auto outcome =
        planner.Solve({&graph, &operators, &cluster, costs.get(), mini_batch, Optimizer::kAdam},
                      options_, context);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return *outcome;
  }
  PlanOptions options_;
  std::unique_ptr<Planner> single_ = MakeSinglePlanner();
  std::unique_ptr<Planner> parallel_ = MakeDataParallelPlanner();
};

TEST_F(BaselinesTest, SingleUsesOneDeviceAndTheWholeMiniBatch) {
  const Outcome outcome =
      Solve(*single_, ProfiledChain(3, {1000, 2000, 0, 0, {}}), FlatCluster(4), 12);
  ASSERT_TRUE(outcome.strategy);
  ASSERT_EQ(outcome.strategy->stages.size(), 1u);
  const Stage& stage = outcome.strategy->stages[0];
  EXPECT_THAT(stage.devices, ElementsAre(DeviceId(0)));
  EXPECT_EQ(stage.nodes.size(), 3u);
  EXPECT_EQ(stage.micro_batch, 12);  // All are as fast; the first tried is the largest.
}

TEST_F(BaselinesTest, SingleTakesSmallerMicroBatchesWhereMemoryIsShort) {
  const Graph graph = ProfiledChain(1, {1000, 2000, kMiB, 0, {}});
  const Outcome outcome = Solve(*single_, graph, FlatCluster(1, 5 * kMiB), 12);
  ASSERT_TRUE(outcome.strategy);
  EXPECT_EQ(outcome.strategy->stages[0].micro_batch, 4);
  const Outcome none = Solve(*single_, graph, FlatCluster(1, kMiB / 2), 12);
  EXPECT_EQ(none.termination, Termination::kInfeasible);
  EXPECT_THAT(none.reason, HasSubstr("too much"));
}

TEST_F(BaselinesTest, SingleFindsTheFasterKind) {
  ClusterData data = FlatCluster(3).data();
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "fast";
  data.kinds[1].flops_per_second *= 4;
  data.kinds[1].memory_bytes_per_second *= 4;
  data.devices[2].kind = 1;
  testing::Rng random(5);
  const Outcome outcome =
      Solve(*single_, testing::RandomNetwork(random, 12), Cluster::Create(data).value(), 64);
  ASSERT_TRUE(outcome.strategy);
  EXPECT_THAT(outcome.strategy->stages[0].devices, ElementsAre(DeviceId(2)));
}

TEST_F(BaselinesTest, DataParallelUsesEveryDeviceThatGetsASample) {
  const Graph graph = ProfiledChain(3, {1000, 2000, 0, 0, {}});
  EXPECT_EQ(Solve(*parallel_, graph, FlatCluster(4), 12).strategy->stages[0].devices.size(), 4u);
  const Outcome few = Solve(*parallel_, graph, FlatCluster(8), 3);
  ASSERT_TRUE(few.strategy);
  EXPECT_EQ(few.strategy->stages[0].devices.size(), 3u);
  EXPECT_EQ(few.strategy->stages[0].micro_batch, 3);
}

TEST_F(BaselinesTest, OptionsTheyCannotMeetAreInfeasibleWithAReason) {
  options_.micro_batch = 2;
  const Outcome outcome =
      Solve(*parallel_, ProfiledChain(3, {1000, 2000, 0, 0, {}}), FlatCluster(4), 12);
  EXPECT_EQ(outcome.termination, Termination::kInfeasible);
  EXPECT_THAT(outcome.reason, HasSubstr("micro-batch of 2"));
}

TEST_F(BaselinesTest, TheyRecomputeAndAreAsynchronousIfAsked) {
  const Graph graph = ProfiledChain(3, {1000, 2000, 0, 0, {}});
  for (const Planner* planner : {single_.get(), parallel_.get()}) {
    options_ = {};
    options_.micro_batch = 6;
    const Outcome plain = Solve(*planner, graph, FlatCluster(2), 12);
    ASSERT_TRUE(plain.strategy);
    EXPECT_FALSE(plain.strategy->stages[0].recompute || plain.strategy->asynchronous);
    options_.recompute = RecomputePolicy::kAlways;
    options_.asynchronous = true;
    const Outcome asked = Solve(*planner, graph, FlatCluster(2), 12);
    ASSERT_TRUE(asked.strategy) << asked.reason;
    EXPECT_TRUE(asked.strategy->stages[0].recompute && asked.strategy->asynchronous);
  }
}

TEST_F(BaselinesTest, TheyMakeOneStageAndNoOtherNumber) {
  options_.num_stages = 2;
  for (const Planner* planner : {single_.get(), parallel_.get()}) {
    EXPECT_FALSE(CheckAbilities(options_, planner->name(), planner->abilities()).ok());
  }
  options_ = {};
  options_.allow_replicas = false;
  EXPECT_TRUE(CheckAbilities(options_, single_->name(), single_->abilities()).ok());
  EXPECT_FALSE(CheckAbilities(options_, parallel_->name(), parallel_->abilities()).ok());
}

}  // namespace
}  // namespace stagewright
