#include "common/lowering/channels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ChainGraph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeStages;

std::vector<ProgramStage> StagesOf(const Strategy& strategy, bool has_backward = true) {
  std::vector<ProgramStage> stages;
  for (const Stage& stage : strategy.stages) {
    stages.push_back(
        {stage.nodes, stage.replicated, stage.devices, stage.micro_batch, has_backward});
  }
  return stages;
}

absl::StatusOr<Channels> Make(const Graph& graph, const Strategy& strategy, bool training = true) {
  return MakeChannels(MessageTypes(graph, Precision::kGraph), strategy,
                      StagesOf(strategy, training), Slots(strategy), training);
}

// "0>8[0,1)": from slot 0 to slot 8.
std::vector<std::string> Text(const Channels& channels) {
  std::vector<std::string> text;
  for (const Piece& piece : channels.pieces) {
    text.push_back(absl::StrCat(piece.producer, ">", piece.consumer, "[", piece.samples.begin, ",",
                                piece.samples.end, ")@", piece.channel));
  }
  return text;
}

TEST(Slots, TileTheMiniBatchByMicroBatchAndReplica) {
  const Graph graph = ChainGraph(2);
  const Slots slots(MakeStages(graph, 8, {{{0}, {0, 1}, 4}, {{1, 2}, {2}, 8}}));
  ASSERT_EQ(slots.size(), 5);
  EXPECT_EQ(slots.first(StageId(1)), 4);
  EXPECT_EQ(slots.end(StageId(1)), 5);
  for (int32_t slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(slots[slot].stage, StageId(0));
    EXPECT_EQ(slots[slot].replica, slot % 2);
    EXPECT_EQ(slots[slot].samples, (SampleRange{2 * slot, 2 * slot + 2}));
    EXPECT_EQ(slots.at(StageId(0), slot / 2, slot % 2), slot);
  }
  EXPECT_EQ(slots[4].samples, (SampleRange{0, 8}));
}

// Shares of three samples flow into shares of four.
TEST(Channels, PiecesAreTheCommonRefinementOfTwoTilings) {
  const Graph graph = ChainGraph(2);
  const auto channels = Make(graph, MakeStages(graph, 12, {{{0}, {0, 1}, 6}, {{1, 2}, {2}, 4}}));
  ASSERT_EQ(channels.status(), absl::OkStatus());
  EXPECT_THAT(Text(*channels), ElementsAre("0>4[0,3)@0", "1>4[3,4)@1", "1>5[4,6)@1", "2>5[6,8)@0",
                                           "2>6[8,9)@0", "3>6[9,12)@1"));
  EXPECT_THAT(channels->Into(5), ElementsAre(2, 3));
  EXPECT_THAT(channels->OutOf(1), ElementsAre(1, 2));
  EXPECT_THAT(channels->Into(0), IsEmpty());
  EXPECT_THAT(channels->OutOf(6), IsEmpty());
}

TEST(Channels, ReplicasThatNeverMeetHaveNone) {
  const Graph graph = ChainGraph(2);
  const auto channels = Make(graph, MakeStages(graph, 8, {{{0}, {0, 1}, 4}, {{1, 2}, {3, 2}, 4}}));
  ASSERT_EQ(channels.status(), absl::OkStatus());
  ASSERT_EQ(channels->channels.size(), 2u);
  EXPECT_EQ(channels->channels[0].source, DeviceId(0));
  EXPECT_EQ(channels->channels[0].target, DeviceId(3));
  EXPECT_EQ(channels->channels[1].source, DeviceId(1));
  EXPECT_EQ(channels->channels[1].target, DeviceId(2));
}

TEST(Channels, CarryEachValueOnceAndItsGradientInTraining) {
  // Both nodes of stage 1 read node 0, one float32 per sample.
  const Graph graph = testing::LinearGraph({{}, {0}, {0, 1}});
  const Strategy strategy = MakeStages(graph, 4, {{{0}, {0}, 2}, {{1, 2, 3}, {1}, 2}});
  const auto trains = Make(graph, strategy);
  ASSERT_EQ(trains.status(), absl::OkStatus());
  ASSERT_EQ(trains->channels.size(), 1u);
  const Channel& channel = trains->channels[0];
  EXPECT_THAT(channel.values, ElementsAre(ValueRef{NodeId(0), 0}));
  EXPECT_THAT(channel.gradient_values, ElementsAre(ValueRef{NodeId(0), 0}));
  EXPECT_EQ(channel.activation_bytes_per_sample, 4);
  EXPECT_EQ(channel.gradient_bytes_per_sample, 4);
  EXPECT_TRUE(channel.has_gradient);
  const auto evaluates = Make(graph, strategy, /*training=*/false);
  ASSERT_EQ(evaluates.status(), absl::OkStatus());
  EXPECT_EQ(evaluates->channels[0].activation_bytes_per_sample, 4);
  EXPECT_THAT(evaluates->channels[0].gradient_values, IsEmpty());
  EXPECT_FALSE(evaluates->channels[0].has_gradient);
}

TEST(Channels, ControlEdgesAreEmptyMessagesInBothDirections) {
  const Graph graph = testing::LinearGraph({{}, {}, {0, 1}});
  const Strategy strategy = MakeStages(graph, 4, {{{0}, {0}, 2}, {{1}, {1}, 2}, {{2, 3}, {2}, 2}},
                                       StrategyKind::kSequential);
  const auto control = [&](bool training) {
    const auto channels = Make(graph, strategy, training);
    EXPECT_EQ(channels.status(), absl::OkStatus());
    EXPECT_EQ(channels->channels[0].from, StageId(0));
    EXPECT_EQ(channels->channels[0].to, StageId(1));
    return channels->channels[0];
  };
  EXPECT_THAT(control(true).values, IsEmpty());
  EXPECT_EQ(control(true).activation_bytes_per_sample, 0);
  EXPECT_TRUE(control(true).has_gradient);
  EXPECT_FALSE(control(false).has_gradient);
}

TEST(Channels, TensorsWithoutABatchAreNotSplit) {
  testing::GraphBuilder builder("fixed");
  const Argument x = builder.Feature("x", {1});
  const Argument all = builder.AddWith("test.all.default", {x}, {testing::Fixed({3})});
  builder.Add("test.use.default", {all}, {1});
  const Graph graph = builder.Build();
  EXPECT_EQ(Make(graph, MakeStages(graph, 4, {{{0}, {0}, 2}, {{1}, {1}, 2}})).status(),
            absl::OkStatus());
  const absl::Status status =
      Make(graph, MakeStages(graph, 4, {{{0}, {0}, 2}, {{1}, {1}, 4}})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be split between stages 0 and 1"));
}

}  // namespace
}  // namespace stagewright
