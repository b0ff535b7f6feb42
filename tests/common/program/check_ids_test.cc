// Each index of a program out of range, and the message it gives.
#include "common/program/check_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "common/lowering/lower.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class CheckIdsTest : public ::testing::Test {
 protected:
  // Stage 0 on devices 0 and 1, stage 1 on device 2, four micro-batches of two samples.
  void SetUp() override {
    const Strategy strategy = testing::MakeStages(graph_, 8, {{{0}, {0, 1}, 2}, {{1, 2}, {2}, 2}});
    good_ = *Lower(graph_, strategy, testing::FixedCosts(100, 7, graph_), {});
    ASSERT_EQ(CheckIds(graph_, good_), absl::OkStatus());
  }

  // The answer to a good program that `spoil` changed.
  template <typename Spoil>
  std::string MessageWithoutGraph(Spoil spoil) const {
    Program program = good_;
    spoil(program);
    const absl::Status status = CheckIds(program);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  template <typename Spoil>
  std::string Message(Spoil spoil) const {
    Program program = good_;
    spoil(program);
    const absl::Status status = CheckIds(graph_, program);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const Graph graph_ = testing::ChainGraph(2);
  Program good_;
};

TEST_F(CheckIdsTest, Stages) {
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.mini_batch = 0; }),
              HasSubstr("mini_batch is 0"));
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.stages[1].devices.clear(); }),
              HasSubstr("stages[1].devices is empty"));
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.stages[1].micro_batch = 3; }),
              HasSubstr("stages[1].micro_batch 3 does not divide the mini-batch 8"));
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.stages[0].devices[1] = DeviceId(); }),
              HasSubstr("stages[0].devices: -1"));
}

TEST_F(CheckIdsTest, VersionsOfWeightsAreThoseOfAsynchronousStages) {
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.stages[0].version_lag = -1; }),
              HasSubstr("stages[0].version_lag is negative: -1"));
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.stages[0].version_lag = 1; }),
              HasSubstr("where there is one version of the weights"));
  const auto frozen = [](Program& p) {
    p.asynchronous = true;
    p.stages[0].has_backward = false;
    p.stages[0].version_lag = 1;
  };
  EXPECT_THAT(MessageWithoutGraph(frozen), HasSubstr("where there is no backward pass"));
}

TEST_F(CheckIdsTest, ChannelsAndReductions) {
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.channels[0].to = StageId(5); }),
              HasSubstr("channels[0]: stages 0 -> 5 do not exist"));
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.channels[1].target = DeviceId(); }),
              HasSubstr("channels[1]: a device is missing"));
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.channels[1].gradient_bytes_per_sample = -1; }),
              HasSubstr("channels[1]: bytes per sample are negative"));
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.reductions[0].devices[0] = DeviceId(); }),
              HasSubstr("reductions[0].devices: -1"));
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.reductions[0].stages = {StageId(2)}; }),
              HasSubstr("reductions[0].stages: 2"));
}

TEST_F(CheckIdsTest, DevicesAreInOrder) {
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { std::swap(p.devices[0], p.devices[1]); }),
              StartsWith("devices are not in order"));
  EXPECT_THAT(MessageWithoutGraph([](Program& p) { p.devices[1].device = DeviceId(0); }),
              StartsWith("devices are not in order"));
}

// The first action of device 0 is F0[0,1), the next sends its activation.
TEST_F(CheckIdsTest, Actions) {
  const auto message = [&](auto spoil) {
    return MessageWithoutGraph([&](Program& p) { spoil(p.devices[0].body); });
  };
  using Body = std::vector<ProgramAction>;
  EXPECT_THAT(message([](Body& body) { body[0].after = {99}; }),
              StartsWith("device 0, body action 0 F0[0,1): it waits for action 99, which does"));
  EXPECT_THAT(message([](Body& body) { body[0].after = {-1}; }),
              HasSubstr("it waits for action -1, which does"));
  EXPECT_THAT(message([](Body& body) { body[1].action.channel = 7; }),
              StartsWith("device 0, body action 1 SA0[0,1)@7: channel 7 does not exist"));
  EXPECT_THAT(message([](Body& body) { body[0].action.channel = 0; }),
              HasSubstr("channel 0 does not exist"));
  EXPECT_THAT(message([](Body& body) { body[0].action.stage = StageId(2); }),
              StartsWith("device 0, body action 0 F2[0,1): the stage does not exist"));
  EXPECT_THAT(message([](Body& body) { body[0].action.samples.end = 9; }),
              HasSubstr("F0[0,9): its samples are not within the mini-batch [0,8)"));
  EXPECT_THAT(message([](Body& body) { body[0].action.samples.end = 0; }),
              HasSubstr("its samples are not within the mini-batch"));
  EXPECT_THAT(message([](Body& body) { body[0].acquire = -1; }),
              HasSubstr("F0[0,1): it acquires or releases negative bytes"));
}

TEST_F(CheckIdsTest, Marks) {
  const auto message = [&](const std::vector<PassMark>& marks, ActionKind waits, ActionKind pass) {
    return MessageWithoutGraph([&](Program& p) {
      p.devices[0].body = {{{pass, StageId(0), {0, 1}}, {}}, {{waits, StageId(0), {}, 0}, {}}};
      if (waits != ActionKind::kAllReduce) p.devices[0].body[1].action.channel = -1;
      p.devices[0].body[1].after_marks = marks;
    });
  };
  const ActionKind sum = ActionKind::kAllReduce;
  EXPECT_THAT(message({{2, 0}}, sum, ActionKind::kBackward),
              HasSubstr("AR0@0: it waits for a mark of action 2, which does not exist"));
  EXPECT_THAT(message({{-1, 0}}, sum, ActionKind::kBackward), HasSubstr("a mark of action -1"));
  EXPECT_THAT(message({{0, 0}}, sum, ActionKind::kBackwardInput),
              HasSubstr("it waits for a mark of action 0, which makes no gradients"));
  EXPECT_THAT(message({{0, 1}}, sum, ActionKind::kBackward),
              HasSubstr("it waits for mark 1 of action 0, whose stage has no such node"));
  EXPECT_THAT(message({{0, -1}}, sum, ActionKind::kBackwardWeight), HasSubstr("mark -1"));
  EXPECT_THAT(message({{0, 0}}, ActionKind::kOptimizerStep, ActionKind::kBackward),
              HasSubstr("OS0: only sums wait for marks"));
}

TEST_F(CheckIdsTest, AnOptimizerStepNamesAReductionOfItsStageAlone) {
  const auto message = [&](int32_t reduction, const std::vector<StageId>& stages) {
    return MessageWithoutGraph([&](Program& p) {
      p.reductions[0].stages = stages;
      p.devices[0].body = {{{ActionKind::kOptimizerStep, StageId(0), {}, reduction}, {}}};
    });
  };
  EXPECT_THAT(message(1, {StageId(0)}), HasSubstr("OS0@1: reduction 1 does not exist"));
  EXPECT_THAT(message(0, {StageId(0), StageId(1)}),
              HasSubstr("OS0@0: reduction 0 is not of its stage alone"));
  EXPECT_THAT(message(0, {StageId(1)}), HasSubstr("not of its stage alone"));
}

TEST_F(CheckIdsTest, NamesTheSectionOfAnAction) {
  const auto last_step = [](Program& p) {
    p.devices[2].epilogue.push_back({*ParseAction("OS4"), {}, 0, 0});
  };
  EXPECT_THAT(MessageWithoutGraph(last_step), StartsWith("device 2, epilogue action 0 OS4: "));
  const auto sum = [](Program& p) {
    p.devices[0].prologue.push_back({*ParseAction("AR0@1"), {}, 0, 0});
  };
  EXPECT_THAT(MessageWithoutGraph(sum), HasSubstr("prologue action 0 AR0@1: reduction 1 does not"));
}

TEST_F(CheckIdsTest, WhatTheGraphDoesNotHave) {
  EXPECT_THAT(Message([&](Program& p) { p.stages[1].nodes.push_back(NodeId(graph_.size())); }),
              HasSubstr("stages[1]: node 3 is not in the graph"));
  EXPECT_THAT(Message([](Program& p) { p.stages[0].replicated.push_back(NodeId()); }),
              HasSubstr("stages[0]: node -1"));
  EXPECT_THAT(Message([](Program& p) { p.channels[0].values[0].node = NodeId(99); }),
              HasSubstr("channels[0]: node 99"));
  EXPECT_THAT(Message([](Program& p) { p.channels[0].values[0].output = 1; }),
              HasSubstr("channels[0]: output 1 of node 0"));
  EXPECT_THAT(Message([](Program& p) { p.channels[1].gradient_values[0].output = -1; }),
              HasSubstr("channels[1]: output -1"));
  EXPECT_THAT(Message([](Program& p) { p.reductions[0].parameters[0] = ParameterId(99); }),
              HasSubstr("reductions[0]: parameter 99"));
  EXPECT_THAT(Message([](Program& p) { p.devices[0].body[0].action.stage = StageId(9); }),
              HasSubstr("the stage does not exist"));
}

}  // namespace
}  // namespace stagewright
