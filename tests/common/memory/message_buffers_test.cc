#include "common/memory/message_buffers.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/lowering/lower.h"
#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using Counts = std::map<Bytes, int32_t>;
using testing::ChainGraph;
using testing::GraphBuilder;
using testing::MakeStages;

// A layer and what follows it, a device each; micro-batches of two samples.
Program Lowered(const Graph& graph, int64_t mini_batch, bool training = true) {
  const Strategy strategy = MakeStages(graph, mini_batch, {{{0}, {0}, 2}, {{1, 2}, {1}, 2}});
  const auto program =
      Lower(graph, strategy, *MakeAnalyticCostModel(graph), {.training = training});
  EXPECT_EQ(program.status(), absl::OkStatus());
  return *program;
}

TEST(MessageBuffersTest, CountWhatIsReceivedAndNotYetUsedUp) {
  const Graph graph = ChainGraph(2);
  const Program training = Lowered(graph, 8);
  // A gradient, and the next one while the first is used.
  EXPECT_EQ(MessageBuffers(MessageTypes(graph, Precision::kGraph), training, training.devices[0]),
            (Counts{{8, 2}}));
  // An activation until its backward pass, and the next one. Sends need no buffer.
  EXPECT_EQ(MessageBuffers(MessageTypes(graph, Precision::kGraph), training, training.devices[1]),
            (Counts{{8, 2}}));
  EXPECT_EQ(BufferBytes(MessageTypes(graph, Precision::kGraph), training, training.devices[1]), 16);
  const Program forward_only = Lowered(graph, 8, false);
  EXPECT_EQ(
      MessageBuffers(MessageTypes(graph, Precision::kGraph), forward_only, forward_only.devices[0]),
      Counts());
  EXPECT_EQ(
      MessageBuffers(MessageTypes(graph, Precision::kGraph), forward_only, forward_only.devices[1]),
      (Counts{{8, 2}}));
}

TEST(MessageBuffersTest, DoNotGrowWithTheMiniBatch) {
  const Graph graph = ChainGraph(2);
  const Program few = Lowered(graph, 8);
  const Program many = Lowered(graph, 128);
  for (int device = 0; device < 2; ++device) {
    EXPECT_EQ(MessageBuffers(MessageTypes(graph, Precision::kGraph), few, few.devices[device]),
              MessageBuffers(MessageTypes(graph, Precision::kGraph), many, many.devices[device]));
  }
}

// The values of a message begin at multiples of 16 bytes.
TEST(MessageBuffersTest, SendsOfSeveralValuesArePackedInABufferPerLane) {
  GraphBuilder builder("two");
  const Argument x = builder.Feature("x", {1});
  const Argument a = builder.Linear(x, 1, 1);                        // 0
  const Argument b = builder.Add("aten.sigmoid.default", {a}, {1});  // 1
  const Argument sum = builder.Add("aten.add.Tensor", {a, b}, {1});  // 2
  builder.Loss(builder.Linear(sum, 1, 1), {1});
  const Graph graph = builder.Build();
  const Strategy strategy = MakeStages(graph, 4, {{{0, 1}, {0}, 2}, {{2, 3, 4}, {1}, 2}});
  const Program program = *Lower(graph, strategy, *MakeAnalyticCostModel(graph), {});
  ASSERT_EQ(program.channels[0].values.size(), 2u);
  EXPECT_TRUE(IsPacked(MessageTypes(graph, Precision::kGraph), program.channels[0].values));
  EXPECT_EQ(MessageBytes(MessageTypes(graph, Precision::kGraph), program.channels[0].values, 2),
            16 + 8);
  // Two gradients at a time, and the activation that is being sent.
  EXPECT_EQ(MessageBuffers(MessageTypes(graph, Precision::kGraph), program, program.devices[0]),
            (Counts{{24, 3}}));
}

// Products are sent in two bytes, what is promoted in four.
TEST(MessageBuffersTest, AreOfTheTypesOfTheMessages) {
  GraphBuilder builder("mixed");
  const Argument x = builder.Feature("x", {8});
  const Argument product = builder.Linear(x, 8, 8);                        // 0
  const Argument sum = builder.Add("aten.add.Tensor", {product, x}, {8});  // 1
  builder.Loss(builder.Linear(sum, 8, 8), {8});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph, Precision::kBFloat16);
  const MessageTypes types(graph, Precision::kBFloat16);
  for (const auto& [first, bytes] : {std::pair(1, 2), std::pair(2, 4)}) {
    std::vector<int32_t> before = {0}, after = {1, 2, 3};
    if (first == 2) before = {0, 1}, after = {2, 3};
    const Strategy strategy = MakeStages(graph, 4, {{before, {0}, 2}, {after, {1}, 2}});
    const Program program = *Lower(graph, strategy, *costs, {});
    ASSERT_EQ(program.channels.size(), 1u);
    EXPECT_EQ(program.channels[0].activation_bytes_per_sample, 8 * bytes);
    EXPECT_EQ(program.channels[0].gradient_bytes_per_sample, 8 * bytes);
    EXPECT_EQ(MessageBuffers(types, program, program.devices[1]), (Counts{{2 * 8 * bytes, 2}}));
  }
}

// A message that others make up a share with is copied at once.
TEST(MessageBuffersTest, PiecesOfAShareAreNeededUntilTheyAreJoined) {
  const Graph graph = ChainGraph(2);
  const Strategy strategy = MakeStages(graph, 4, {{{0}, {0}, 1}, {{1, 2}, {1}, 2}});
  const Program program = *Lower(graph, strategy, *MakeAnalyticCostModel(graph), {});
  EXPECT_EQ(MessageBuffers(MessageTypes(graph, Precision::kGraph), program, program.devices[1]),
            (Counts{{4, 4}}));
}

TEST(MessageBuffersTest, NobodyRunsPlanningOnlyGraphs) {
  const Graph graph = testing::TwoProfiledNodes();
  const Strategy strategy = MakeStages(graph, 4, {{{0}, {0}, 2}, {{1}, {1}, 2}});
  const Program program = *Lower(graph, strategy, *MakeAnalyticCostModel(graph), {});
  EXPECT_EQ(BufferBytes(MessageTypes(graph, Precision::kGraph), program, program.devices[1]), 0);
}

}  // namespace
}  // namespace stagewright
