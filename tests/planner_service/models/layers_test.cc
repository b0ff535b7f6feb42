#include "planner_service/models/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::FlatCluster;
using ::testing::Pair;
using testing::ProfiledGraph;
using testing::SearchCase;
using ::testing::UnorderedElementsAre;
using testing::Work;

TEST(LayersTest, PositionsFollowTheOrder) {
  // A node that two branches read, and a join.
  std::vector<Work> nodes(4, {1000, 2000, 100, 0, {}});
  nodes[1].after = {0};
  nodes[2].after = {0};
  nodes[3].after = {1, 2};
  nodes[0].activation_bytes = 700;
  const SearchCase c(ProfiledGraph(nodes), FlatCluster(2), 8);
  const StageOracle oracle(c.problem, {OperatorId(0), OperatorId(2), OperatorId(1), OperatorId(3)});
  EXPECT_THAT(LayerGraph(oracle).Edges(),
              UnorderedElementsAre(Pair(0, 1), Pair(0, 2), Pair(1, 3), Pair(2, 3)));
  // Two readers of a value count once, and what nobody reads is no output.
  const std::vector<double> outputs = LayerOutputs(oracle);
  EXPECT_THAT(outputs, ElementsAre(outputs[0], outputs[1], outputs[1], 0));
  EXPECT_EQ(outputs[0], 7 * outputs[1]);
}

}  // namespace
}  // namespace stagewright
