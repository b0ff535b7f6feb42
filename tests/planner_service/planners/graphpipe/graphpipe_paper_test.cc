// What the GraphPipe paper states about plans, held against what the planners find.
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/node_weights.h"
#include "common/topology/presets.h"
#include "common/wire/graph_file.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/graphpipe/graphpipe.h"
#include "tests/planner_service/planners/graphpipe/search_case.h"
#include "tests/support/checkout/source_path.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::SearchCase;
using testing::Work;

struct Judged {
  Strategy strategy;
  Evaluation evaluation;
};

Judged Plan(const Planner& planner, const Problem& problem, const PlanOptions& options) {
  SearchContext context;
  const auto outcome = planner.Solve(problem, options, context);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->strategy.has_value()) << outcome->reason;
  EvaluateOptions judge;
  judge.optimizer = problem.optimizer;
  auto evaluation =
      Evaluate(*problem.graph, *problem.cluster, *problem.costs, *outcome->strategy, judge);
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  return {*outcome->strategy, *std::move(evaluation)};
}

struct Compared {
  Judged graph;
  Judged sequential;
  double gain = 0;  // GPP's throughput over SPP's.
};

Compared Compare(const Problem& problem, const PlanOptions& options = {}) {
  Compared both{Plan(*MakeGraphPipePlanner(), problem, options),
                Plan(*MakeSequentialPlanner(), problem, options)};
  both.gain = static_cast<double>(both.sequential.evaluation.iteration_time) /
              static_cast<double>(both.graph.evaluation.iteration_time);
  return both;
}

// One of the models of examples/graphs on a cluster, coarsened as the front door does.
struct Model {
  Model(const std::string& name, Cluster the_cluster, int64_t mini_batch)
      : graph(*ReadGraphFile(testing::SourcePath(absl::StrCat("examples/graphs/", name)))),
        cluster(std::move(the_cluster)),
        costs(MakeAnalyticCostModel(graph)),
        operators(
            *Coarsen(graph, NodeWeights(graph, *costs, cluster.kinds()[0],
                                        std::max<int64_t>(1, mini_batch / (2 * cluster.size()))))),
        problem{&graph, &operators, &cluster, costs.get(), mini_batch} {
    // FlexFlow sums the gradients of a stage after its last backward pass.
    problem.bucket_bytes = Bytes{int64_t{1} << 50};
  }
  Model(const Model&) = delete;

  Graph graph;
  Cluster cluster;
  std::unique_ptr<CostModel> costs;
  OperatorGraph operators;
  Problem problem;
};

Cluster Summit(int32_t devices) { return *ClusterPreset(absl::StrCat("summit:", devices / 4)); }

Cluster SummitWithMemory(int32_t devices, Bytes memory) {
  ClusterData data = Summit(devices).data();
  for (Device& device : data.devices) device.memory = memory;
  return *Cluster::Create(data);
}

// The nodes of each stage by operator kind, e.g. the number of attention nodes.
int Count(const Graph& graph, const Stage& stage, const std::string& what) {
  int count = 0;
  for (NodeId node : stage.nodes) {
    count += graph.node(node).target.find(what) != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST(GraphPipePaper, Figure2ThreeStagesFeedAFourth) {
  const Work work{10 * kMicrosecond, 20 * kMicrosecond, kKiB, kKiB};
  std::vector<Work> nodes(4, work);
  nodes[3].after = {0, 1, 2};
  const SearchCase c(testing::ProfiledGraph(nodes), testing::FlatCluster(4, kGiB, 0, 1e15), 8);
  PlanOptions options;
  options.num_stages = 4;
  options.micro_batch = 1;
  const Compared both = Compare(c.problem, options);
  EXPECT_EQ(both.graph.evaluation.depth, 2);
  EXPECT_EQ(both.sequential.evaluation.depth, 4);
  EXPECT_EQ(both.graph.evaluation.stages[0].in_flight, 2);
  EXPECT_EQ(both.sequential.evaluation.stages[0].in_flight, 4);
  // 8 micro-batches and depth - 1 to fill and drain, 30 us each.
  EXPECT_NEAR(ToSeconds(both.graph.evaluation.iteration_time), 9 * 30e-6, 1e-7);
  EXPECT_NEAR(ToSeconds(both.sequential.evaluation.iteration_time), 11 * 30e-6, 1e-7);
}

// Figures 9 and 10: eight stages on eight devices, the memory so tight that no two of them fit on
// one, and no recomputation, which the paper has not. Both planners cut one attention and two
// linear layers per stage, SPP takes micro-batches of 2 and GPP of 4, and GPP gains about 20 %, as
// printed. The paper counts depth 4: the four stages of one branch. The stage that holds the
// concatenation reads from the last stage of the other branch, so the longest path has five stages,
// four edges, against eight stages in the chain.
TEST(GraphPipePaper, Figure10CaseStudy) {
  const Model model("case-study.swg", SummitWithMemory(8, 490 * kMiB), 64);
  PlanOptions options;
  options.num_stages = 8;
  options.recompute = RecomputePolicy::kNever;
  const Compared both = Compare(model.problem, options);
  ASSERT_EQ(both.graph.strategy.stages.size(), 8u);
  ASSERT_EQ(both.sequential.strategy.stages.size(), 8u);
  for (size_t s = 0; s < 8; ++s) {
    const Stage& stage = both.graph.strategy.stages[s];
    EXPECT_EQ(stage.nodes, both.sequential.strategy.stages[s].nodes);
    EXPECT_EQ(stage.devices.size(), 1u);
    EXPECT_EQ(Count(model.graph, stage, "scaled_dot_product_attention"), 1);
  }
  EXPECT_EQ(both.sequential.evaluation.depth, 8);
  EXPECT_EQ(both.graph.evaluation.depth, 5);
  EXPECT_EQ(both.sequential.strategy.stages[0].micro_batch, 2);
  EXPECT_EQ(both.graph.strategy.stages[0].micro_batch, 4);
  EXPECT_GT(both.gain, 1.15);

  // The two sources of the gain, each alone.
  options.micro_batch = 2;
  const Compared same_size = Compare(model.problem, options);
  EXPECT_GT(same_size.gain, 1.05);              // The gain of a shorter pipeline.
  EXPECT_GT(both.gain / same_size.gain, 1.05);  // The gain of larger micro-batches.
}

// On captured models, where messages meet at the join, the gain is below the paper's, which is up
// to 2, and may stay for one more doubling.
TEST(GraphPipePaper, Figure7TheGainGrowsWithTheBranchesOfCandle) {
  PlanOptions options;
  options.allow_replicas = false;
  for (int32_t devices : {8, 16}) {
    double before = 1;
    for (int32_t branches : {2, 4, 8, 16}) {
      const Model model(absl::StrCat("candle-uno-b", branches, ".swg"), Summit(devices),
                        1024 * devices);
      const double gain = Compare(model.problem, options).gain;
      EXPECT_GT(gain, 0.98 * before) << branches << " branches on " << devices;
      before = gain;
    }
    EXPECT_GT(before, 1.2) << devices;
  }
}

// A synthetic graph: equal operators, messages of no size, links without latency.
TEST(GraphPipePaper, Figure7TheGainGrowsWithTheBranchesOfEqualOperators) {
  double before = 1;
  for (int32_t branches : {2, 4, 8, 16}) {
    std::vector<Work> nodes;
    for (int32_t b = 0; b < branches; ++b) {
      for (int32_t layer = 0; layer < 4; ++layer) {
        nodes.push_back({10 * kMicrosecond, 20 * kMicrosecond, kKiB, kMiB});
        if (layer > 0) nodes.back().after = {static_cast<int32_t>(nodes.size()) - 2};
      }
    }
    Work join{kMicrosecond, 2 * kMicrosecond, kKiB, kKiB};
    for (int32_t b = 0; b < branches; ++b) join.after.push_back(4 * b + 3);
    nodes.push_back(join);
    const SearchCase c(testing::ProfiledGraph(nodes), testing::FlatCluster(16, kGiB, 0, 1e12), 16);
    PlanOptions options;
    options.allow_replicas = false;
    const double gain = Compare(c.problem, options).gain;
    EXPECT_GT(gain, before) << branches << " branches";
    before = gain;
  }
  EXPECT_GT(before, 1.6);  // The paper: up to 2 x at 16 branches.
}

TEST(GraphPipePaper, SequentialModelsGetTheSamePlan) {
  for (int32_t devices : {4, 8, 16}) {
    const Model model("transformer.swg", Summit(devices), 16 * devices);
    EXPECT_NEAR(Compare(model.problem).gain, 1, 0.02) << devices << " devices";
  }
}

// Figures 6 and 8 on the models and mini-batches of appendix A.2.
TEST(GraphPipePaper, Figure6GraphPipelinesAreNeverBehind) {
  const std::pair<const char*, int64_t> models[] = {
      {"mmt.swg", 16}, {"dlrm.swg", 64}, {"candle-uno.swg", 1024}};
  for (const auto& [name, per_device] : models) {
    for (int32_t devices : {4, 8, 16, 32}) {
      const Model model(name, Summit(devices), per_device * devices);
      EXPECT_GE(Compare(model.problem).gain, 0.999) << name << " on " << devices;
    }
  }
}

TEST(GraphPipePaper, Figure8ParallelStagesPayAt32Devices) {
  PlanOptions one_device_per_stage;
  one_device_per_stage.allow_replicas = false;
  const Model mmt("mmt.swg", Summit(32), 512);
  EXPECT_GT(Compare(mmt.problem, one_device_per_stage).gain, 1.2);
  EXPECT_GT(Compare(mmt.problem).gain, 1.15);
  const Model dlrm("dlrm.swg", Summit(32), 2048);
  EXPECT_GT(Compare(dlrm.problem, one_device_per_stage).gain, 1.25);
  EXPECT_GT(Compare(dlrm.problem).gain, 1.25);
}

}  // namespace
}  // namespace stagewright
