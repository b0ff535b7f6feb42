#include "planner_service/planners/pfeife/pfeife.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/cost/analytic.h"
#include "planner_service/front_door/front_door.h"
#include "tests/support/clusters.h"
#include "tests/support/model_graphs.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledChain;

Cluster Fast(int32_t devices) {
  return FlatCluster(devices, 256 * kGiB, 20 * kMicrosecond, 12.5e9);
}

PlanResponse Solve(const Graph& graph, const Cluster& cluster, int64_t mini_batch,
                   const PlanOptions& options = {}) {
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = mini_batch;
  request.options = options;
  SearchContext context;
  auto response = SolvePlanWith(*MakePfeifePlanner(), request, context);
  EXPECT_TRUE(response.ok()) << response.status();
  return response.ok() ? *std::move(response) : PlanResponse();
}

std::map<DeviceId, int> StagesByDevice(const Strategy& strategy) {
  std::map<DeviceId, int> stages;
  for (const Stage& stage : strategy.stages) ++stages[stage.devices[0]];
  return stages;
}

TEST(PfeifeTest, LoopsOverALongChain) {
  const Graph graph = ProfiledChain(64, {kMillisecond, 2 * kMillisecond, kMiB, kMiB, {}});
  PlanOptions once;
  once.micro_batch = 1;
  once.max_loops = 1;
  PlanOptions loops = once;
  loops.max_loops = 0;
  const PlanResponse plain = Solve(graph, Fast(4), 4, once);
  const PlanResponse looped = Solve(graph, Fast(4), 4, loops);
  ASSERT_TRUE(plain.best && looped.best);
  for (const auto& [device, stages] : StagesByDevice(plain.best->plan.strategy)) {
    EXPECT_EQ(stages, 1);
  }
  EXPECT_GT(StagesByDevice(looped.best->plan.strategy).begin()->second, 1);
  EXPECT_LT(static_cast<double>(looped.best->evaluation.iteration_time),
            0.95 * static_cast<double>(plain.best->evaluation.iteration_time));
}

// A branch per device: slices of different branches do not wait for each other.
TEST(PfeifeTest, KeepsParallelBranchesParallel) {
  const Graph graph = testing::MmtGraph(4, 8);
  PlanOptions options;
  options.micro_batch = 4;
  const PlanResponse response = Solve(graph, Fast(4), 16, options);
  ASSERT_TRUE(response.best);
  EXPECT_LT(static_cast<double>(response.best->evaluation.iteration_time),
            1.1 * static_cast<double>(response.lower_bound));
  options.sequential = true;
  const PlanResponse chain = Solve(graph, Fast(4), 16, options);
  ASSERT_TRUE(chain.best);
  EXPECT_EQ(chain.best->plan.strategy.kind, StrategyKind::kSequential);
  EXPECT_LE(response.best->evaluation.iteration_time, chain.best->evaluation.iteration_time);
}

TEST(PfeifeTest, EveryDeviceHasAnOrder) {
  const PlanResponse response = Solve(testing::UnevenChain(40), Fast(4), 32);
  ASSERT_TRUE(response.best);
  const Strategy& strategy = response.best->plan.strategy;
  EXPECT_EQ(strategy.orders.size(), StagesByDevice(strategy).size());
}

TEST(PfeifeTest, UsesFewerDevicesWhereLinksAreSlow) {
  const Graph graph = ProfiledChain(8, {kMicrosecond, 2 * kMicrosecond, 64 * kMiB, kKiB, {}});
  const PlanResponse response = Solve(graph, FlatCluster(8, 256 * kGiB, kMillisecond, 1e8), 8);
  ASSERT_TRUE(response.best);
  EXPECT_EQ(response.best->plan.strategy.stages.size(), 1u);
}

// The fast half of the devices takes more of the work.
TEST(PfeifeTest, FastDevicesGetMore) {
  const Graph graph = testing::MmtGraph(1, 12);
  ClusterData data = Fast(4).data();
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "fast";
  data.devices[1].kind = data.devices[3].kind = 1;
  const Cluster cluster = Cluster::Create(data).value();
  // The analytic model has one time for profiled operators on all kinds: tell it of a fast one.
  class TwiceAsFast : public CostModel {
   public:
    explicit TwiceAsFast(const Graph& g) : base_(MakeAnalyticCostModel(g)) {}
    OperatorTime Time(NodeId node, const DeviceKind& kind, int64_t samples) const override {
      OperatorTime time = base_->Time(node, kind, samples);
      if (kind.name != "fast") return time;
      time.forward /= 2;
      time.backward /= 2;
      time.backward_input = time.backward;
      return time;
    }
    Bytes SavedBytes(NodeId node, int64_t samples) const override {
      return base_->SavedBytes(node, samples);
    }
    Bytes WorkspaceBytes(NodeId node, int64_t samples) const override {
      return base_->WorkspaceBytes(node, samples);
    }
    std::string Description() const override { return "two kinds"; }

   private:
    std::unique_ptr<CostModel> base_;
  };
  const TwiceAsFast costs(graph);
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.costs = &costs;
  request.mini_batch = 16;
  SearchContext context;
  const auto response = SolvePlanWith(*MakePfeifePlanner(), request, context);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_TRUE(response->best) << response->reason;
  // Work of 1 by the slow kind; two slow and two fast devices take a sixth at best.
  Nanos whole = 0;
  for (int32_t v = 0; v < graph.size(); ++v) {
    const OperatorTime time = costs.Time(NodeId(v), cluster.kinds()[0], 16);
    whole += time.forward + time.backward;
  }
  EXPECT_LT(static_cast<double>(response->best->evaluation.iteration_time),
            1.35 * static_cast<double>(whole) / 6);
}

TEST(PfeifeTest, ExactNumberOfStages) {
  const Graph graph = testing::UnevenChain(30);
  for (int32_t stages : {1, 2, 3, 5, 7, 8}) {
    SCOPED_TRACE(stages);
    PlanOptions options;
    options.num_stages = stages;
    const PlanResponse response = Solve(graph, Fast(4), 8, options);
    ASSERT_TRUE(response.best) << response.reason;
    EXPECT_EQ(response.best->plan.strategy.stages.size(), static_cast<size_t>(stages));
  }
}

TEST(PfeifeTest, RecomputesWhereNothingElseFits) {
  const Graph graph = ProfiledChain(16, {kMillisecond, 2 * kMillisecond, 100 * kMiB, kKiB, {}});
  // 16 operators over two devices keep 800 MiB a micro-batch each.
  const Cluster cluster = FlatCluster(2, 1200 * kMiB, 0, 1e11);
  const PlanResponse response = Solve(graph, cluster, 4);
  ASSERT_TRUE(response.best) << response.reason;
  EXPECT_TRUE(response.best->plan.strategy.stages[0].recompute);
  PlanOptions never;
  never.recompute = RecomputePolicy::kNever;
  const PlanResponse without = Solve(graph, cluster, 4, never);
  EXPECT_FALSE(without.best && without.best->plan.strategy.stages[0].recompute);
}

// Few of about a thousand shapes on 16 devices are worth a search; all of them take half a million
// states.
TEST(PfeifeTest, EffortGoesToWhatLooksGood) {
  const PlanResponse response = Solve(testing::MmtGraph(4, 4), Fast(16), 64);
  ASSERT_TRUE(response.best) << response.reason;
  EXPECT_LT(response.states, 150'000);
  EXPECT_LT(response.best->evaluation.iteration_time, 152 * kMillisecond);
}

TEST(PfeifeTest, LongStepsAreExtended) {
  const Graph graph = testing::UnevenChain(24);
  PlanOptions options;
  options.micro_batch = 1;
  const PlanResponse response = Solve(graph, Fast(4), 2000, options);
  ASSERT_TRUE(response.best) << response.reason;
  EXPECT_LT(static_cast<double>(response.best->evaluation.iteration_time),
            1.25 * static_cast<double>(response.lower_bound));
}

TEST(PfeifeTest, SaysWhatItCannotDo) {
  const Graph graph = testing::UnevenChain(10);
  const Cluster cluster = Fast(2);
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = 8;
  request.options.asynchronous = true;
  SearchContext context;
  const auto refused = SolvePlanWith(*MakePfeifePlanner(), request, context);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("synchronous"));

  PlanOptions options;
  options.num_stages = 9;
  options.max_loops = 3;
  const PlanResponse response = Solve(graph, cluster, 8, options);
  EXPECT_EQ(response.termination, Termination::kInfeasible);
  EXPECT_THAT(response.reason, HasSubstr("num_stages is 9, but 2 devices"));
}

}  // namespace
}  // namespace stagewright
