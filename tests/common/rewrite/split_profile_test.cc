#include "common/rewrite/split_profile.h"

#include <gtest/gtest.h>

#include "common/rewrite/split_operators.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::ProfiledGraph;

// n0 -> n1 -> n2; the one in between gives 1000 bytes, of which n2 reads 10.
Graph Three() {
  GraphData data = ProfiledGraph({{.forward = 10, .backward = 20, .activation_bytes = 100},
                                  {.forward = 101,
                                   .backward = 203,
                                   .activation_bytes = 1000,
                                   .parameter_bytes = 10'007,
                                   .after = {0}},
                                  {.forward = 1, .backward = 1, .after = {1}}})
                       .data();
  data.nodes[0].cost->edge_bytes = {{NodeId(1), Bytes(60)}};
  data.nodes[1].cost->edge_bytes = {{NodeId(2), Bytes(1000)}};
  data.nodes[1].cost->resident_bytes = Bytes(50'001);
  data.nodes[1].cost->saved_bytes = Bytes(77);
  data.nodes[1].cost->configurations = {{.tensor_parallel = 2, .time = 9}};
  return *Graph::Create(std::move(data));
}

TEST(SplitProfileTest, PartsShareOutTheCostAndAJoinCollectsThem) {
  const Graph whole = Three();
  const auto graph = SplitOperators(whole, {{"n1", 4}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->size(), 7);
  Nanos forward = 0, backward = 0;
  Bytes parameters = 0, given = 0, resident = 0;
  for (int32_t v = 3; v < 7; ++v) {
    const Node& part = graph->node(NodeId(v));
    EXPECT_EQ(part.name, "n1[" + std::to_string(v - 2) + "/4]");
    EXPECT_EQ(part.after, std::vector<NodeId>{NodeId(0)});
    forward += part.cost->forward;
    backward += part.cost->backward;
    parameters += part.cost->parameter_bytes;
    given += part.cost->activation_bytes;
    resident += *part.cost->resident_bytes;
    EXPECT_EQ(part.cost->saved_bytes, Bytes(77));  // Each reads all that the node read.
    EXPECT_GE(part.cost->forward, Nanos(25));
    EXPECT_TRUE(part.cost->edge_bytes.empty());
    EXPECT_TRUE(part.cost->configurations.empty());
  }
  EXPECT_EQ(forward, Nanos(101));
  EXPECT_EQ(backward, Nanos(203));
  EXPECT_EQ(parameters, Bytes(10'007));
  EXPECT_EQ(given, Bytes(1000));
  EXPECT_EQ(resident, Bytes(50'001));

  const Node& join = graph->node(NodeId(1));
  EXPECT_EQ(join.name, "n1");
  EXPECT_EQ(join.after, (std::vector<NodeId>{NodeId(3), NodeId(4), NodeId(5), NodeId(6)}));
  EXPECT_EQ(join.cost->forward + join.cost->backward, Nanos(0));
  EXPECT_EQ(join.cost->parameter_bytes + *join.cost->resident_bytes + *join.cost->saved_bytes,
            Bytes(0));
  EXPECT_EQ(join.cost->activation_bytes, Bytes(1000));
  EXPECT_EQ(join.cost->edge_bytes, whole.node(NodeId(1)).cost->edge_bytes);
  EXPECT_TRUE(join.cost->configurations.empty());
  const std::vector<NeighborBytes> read = {{NodeId(3), Bytes(60)},
                                           {NodeId(4), Bytes(60)},
                                           {NodeId(5), Bytes(60)},
                                           {NodeId(6), Bytes(60)}};
  EXPECT_EQ(graph->node(NodeId(0)).cost->edge_bytes, read);
}

TEST(SplitProfileTest, NeighboursCanBothBeCut) {
  GraphData data = Three().data();
  data.nodes[2].cost->parameter_bytes = Bytes(8);
  const Graph whole = *Graph::Create(std::move(data));
  const auto graph = SplitOperators(whole, {{"n1", 2}, {"n2", 2}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  // The parts of n2 read the join of n1.
  EXPECT_EQ(graph->node(NodeId(5)).name, "n2[1/2]");
  EXPECT_EQ(graph->node(NodeId(5)).after, std::vector<NodeId>{NodeId(1)});
  EXPECT_EQ(graph->node(NodeId(1)).cost->edge_bytes,
            (std::vector<NeighborBytes>{{NodeId(5), Bytes(1000)}, {NodeId(6), Bytes(1000)}}));
}

}  // namespace
}  // namespace stagewright
