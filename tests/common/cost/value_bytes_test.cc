#include "common/cost/value_bytes.h"

#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;
using testing::NodeOf;

TEST(ValueBytes, OfABatchedTensorDoNotDependOnTheShare) {
  GraphBuilder builder("batched");
  const Argument a = builder.Linear(builder.Feature("x", {4}), 4, 6);
  const Graph graph = builder.Build();
  EXPECT_EQ(ValueBytesPerSample(MessageTypes(graph, Precision::kGraph), {NodeOf(a), 0}, 1), 24);
  EXPECT_EQ(ValueBytesPerSample(MessageTypes(graph, Precision::kGraph), {NodeOf(a), 0}, 8), 24);
}

TEST(ValueBytes, OfATensorWithoutBatchAreSharedOut) {
  GraphBuilder builder("whole");
  const Argument x = builder.Feature("x", {4});
  TensorMeta meta;
  meta.shape = {{0, 5}};  // Five numbers, however many samples.
  const Argument a = builder.AddWith("aten.sum.dim_IntList", {x}, {meta});
  const Graph graph = builder.Build();
  EXPECT_EQ(ValueBytesPerSample(MessageTypes(graph, Precision::kGraph), {NodeOf(a), 0}, 1), 20);
  EXPECT_EQ(ValueBytesPerSample(MessageTypes(graph, Precision::kGraph), {NodeOf(a), 0}, 8), 3)
      << "rounded up";
}

TEST(ValueBytes, OfAPlanningOnlyNodeAreItsProfiledActivation) {
  GraphData data;
  data.nodes.resize(1);
  data.nodes[0].name = "a";
  data.nodes[0].cost = ProfiledCost{10, 20, 30, 40, 4};
  data.nodes[0].outputs.resize(1);
  const Graph graph = *Graph::Create(data);
  EXPECT_EQ(ValueBytesPerSample(MessageTypes(graph, Precision::kGraph), {NodeId(0), 0}, 4), 8);
}

}  // namespace
}  // namespace stagewright
