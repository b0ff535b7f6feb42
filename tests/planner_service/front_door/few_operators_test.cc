#include "planner_service/front_door/few_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner_service/front_door/front_door.h"
#include "tests/support/clusters.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::GraphBuilder;
using ::testing::HasSubstr;

std::string Why(const Graph& graph, const std::vector<double>& weights) {
  return WhyFewOperators(graph, Coarsen(graph, weights).value(), weights);
}

// Two products with a value between them whose samples cannot be told apart.
Graph Mixed() {
  GraphBuilder builder("mixed");
  Argument x = builder.Linear(builder.Feature("x", {64}), 64, 64);
  TensorMeta mixed = testing::Batched({64});
  mixed.mixed = true;
  x = builder.AddWith("aten.flip.default", {x}, {mixed});
  builder.data.nodes.back().module = "encoder.0";
  builder.Loss(builder.Linear(x, 64, 8), {8});
  builder.data.nodes[0].outputs[0].mixed = true;
  return builder.Build();
}

TEST(FewOperatorsTest, NamesTheValueThatCannotBeCut) {
  const Graph graph = Mixed();
  const std::string why = Why(graph, std::vector<double>(graph.size(), 1));
  EXPECT_THAT(why, HasSubstr("cannot be cut between samples, because its entries belong to no "
                             "sample alone"));
  EXPECT_THAT(why, HasSubstr("(and 1 more)"));
}

TEST(FewOperatorsTest, NamesTheNodeThatIsMostOfTheWork) {
  const Graph graph = Mixed();
  std::vector<double> weights(graph.size(), 1);
  weights[1] = 100;
  EXPECT_THAT(Why(graph, weights), HasSubstr("(aten.flip.default) of module \"encoder.0\" is 9"));
  EXPECT_THAT(Why(graph, weights), HasSubstr("% of the work, and a node is never cut"));
}

TEST(FewOperatorsTest, PlansSayIt) {
  const Graph graph = Mixed();
  const Cluster cluster = FlatCluster(2);
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = 8;
  SearchContext context;
  const auto plan = SolvePlan(request, context);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->operators, 1);
  EXPECT_THAT(plan->warnings,
              ::testing::Contains(HasSubstr("the graph has only one operator, so there is no "
                                            "pipeline: node \"n0\"")));
  request.options.num_stages = 2;
  const auto refused = SolvePlan(request, context);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->termination, Termination::kInfeasible);
  EXPECT_THAT(refused->reason, HasSubstr("num_stages is 2, but the graph has only 1 operator that "
                                         "can be separated: node \"n0\""));
}

}  // namespace
}  // namespace stagewright
