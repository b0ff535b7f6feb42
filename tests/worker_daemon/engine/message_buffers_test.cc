#include "worker_daemon/engine/message_buffers.h"

#include <gtest/gtest.h>

#include "tests/worker_daemon/engine/local_training.h"
#include "tests/worker_daemon/engine/test_graphs.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT

// Two linear stages, a device each; messages of `width` doubles a sample.
Graph TwoLayers(int64_t width) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, width});
  const int first = make.AddLinear("first", In(x), width, width);
  const int second = make.AddLinear("second", Value(first), width, width);
  const int loss = make.AddNode("aten.mean.default", {Value(second)}, {Meta({})});
  return make.Finish(loss);
}

Programs Lowered(const Graph& graph, int64_t mini_batch, int64_t micro_batch) {
  Strategy strategy;
  strategy.kind = StrategyKind::kGraph;
  strategy.mini_batch = mini_batch;
  for (int s = 0; s < 2; ++s) {
    Stage stage;
    stage.nodes =
        s == 0 ? std::vector<NodeId>{NodeId(0)} : std::vector<NodeId>{NodeId(1), NodeId(2)};
    stage.devices = {DeviceId(s)};
    stage.micro_batch = micro_batch;
    strategy.stages.push_back(std::move(stage));
  }
  strategy.edges.push_back({StageId(0), StageId(1)});
  AssignInFlight(strategy);
  auto programs = LowerBoth(graph, strategy);
  EXPECT_TRUE(programs.ok()) << programs.status();
  return *std::move(programs);
}

TEST(MessageBuffersTest, CountWhatIsReceivedAndNotYetUsedUp) {
  const Graph graph = TwoLayers(8);
  const Programs programs = Lowered(graph, 8, 2);
  const Bytes bytes = 2 * 8 * sizeof(double);
  using Counts = std::map<Bytes, int32_t>;
  const auto& devices = programs.training->devices;
  // A gradient, and the next one while the first is used; and one that is being sent.
  EXPECT_EQ(MessageBuffers(graph, *programs.training, devices[0]), (Counts{{bytes, 3}}));
  // An activation until its backward pass, and the next one; and a gradient being sent.
  EXPECT_EQ(MessageBuffers(graph, *programs.training, devices[1]), (Counts{{bytes, 3}}));
  // Forward only: activations alone.
  const auto& forward_only = programs.evaluation->devices;
  EXPECT_EQ(MessageBuffers(graph, *programs.evaluation, forward_only[0]), (Counts{{bytes, 1}}));
  EXPECT_EQ(MessageBuffers(graph, *programs.evaluation, forward_only[1]), (Counts{{bytes, 2}}));
}

TEST(MessageBuffersTest, DoNotGrowWithTheMiniBatch) {
  const Graph graph = TwoLayers(8);
  const Programs few = Lowered(graph, 8, 1);
  const Programs many = Lowered(graph, 64, 1);
  for (int device = 0; device < 2; ++device) {
    EXPECT_EQ(MessageBuffers(graph, *few.training, few.training->devices[device]),
              MessageBuffers(graph, *many.training, many.training->devices[device]));
  }
}

}  // namespace
}  // namespace stagewright
