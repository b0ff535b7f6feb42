#include "common/cost/node_weights.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;

TEST(NodeWeights, AreForwardPlusBackward) {
  GraphBuilder builder("weights");
  const Argument x = builder.Feature("x", {8});
  const Argument a = builder.Linear(x, 8, 8);
  builder.Linear(a, 8, 8);
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  const DeviceKind kind{"k", 1e12, 1e11, 1000, 0};
  const auto weights = NodeWeights(graph, *costs, kind, 4);
  ASSERT_EQ(weights.size(), 2u);
  for (int32_t v = 0; v < 2; ++v) {
    const OperatorTime time = costs->Time(NodeId(v), kind, 4);
    EXPECT_EQ(weights[v], static_cast<double>(time.forward + time.backward));
  }
  EXPECT_GT(weights[1], weights[0]) << "the first needs no gradient of its input";
}

}  // namespace
}  // namespace stagewright
