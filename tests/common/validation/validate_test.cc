// Each way to break a good program, and the message it gives.
#include "common/validation/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "common/lowering/lower.h"
#include "common/program/text.h"
#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ChainGraph;
using ::testing::HasSubstr;
using testing::MakeStages;

class ValidateTest : public ::testing::Test {
 protected:
  // Stage 0 on devices 0 and 1, stage 1 on device 2, four micro-batches of two samples.
  void SetUp() override {
    strategy_ = MakeStages(graph_, 8, {{{0}, {0, 1}, 2}, {{1, 2}, {2}, 2}});
    LowerAgain();
    ASSERT_EQ(Validate(program_, {}), absl::OkStatus());
  }

  void LowerAgain() { program_ = *Lower(graph_, strategy_, costs_, {}); }

  std::vector<ProgramAction>& Body(size_t row) { return program_.devices[row].body; }

  int32_t Find(size_t row, const std::string& action) {
    for (size_t i = 0; i < Body(row).size(); ++i) {
      if (ToString(Body(row)[i].action) == action) return static_cast<int32_t>(i);
    }
    ADD_FAILURE() << action << " is not in row " << row;
    return 0;
  }
  ProgramAction& At(size_t row, const std::string& action) { return Body(row)[Find(row, action)]; }

  void Erase(size_t row, const std::string& action) {
    const int32_t index = Find(row, action);
    Body(row).erase(Body(row).begin() + index);
    for (ProgramAction& other : Body(row)) {
      std::erase(other.after, index);
      for (int32_t& before : other.after) before -= before > index;
      for (PassMark& mark : other.after_marks) mark.action -= mark.action > index;
    }
  }

  void ExpectBroken(const std::string& message, const std::vector<Bytes>& budget = {}) {
    const absl::Status status = Validate(program_, budget);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(message));
  }

  const Graph graph_ = ChainGraph(2);
  const testing::FixedCosts costs_{100, 7, graph_};
  Strategy strategy_;
  Program program_;
};

// Stage 1 on two devices, its two layers in two buckets.
class ValidateBucketsTest : public ValidateTest {
 protected:
  void SetUp() override {
    strategy_ = MakeStages(graph_of_three_, 8, {{{0}, {0}, 2}, {{1, 2, 3}, {1, 2}, 2}});
    strategy_.bucket_bytes = 1;
    program_ = *Lower(graph_of_three_, strategy_, testing::FixedCosts(100, 7, graph_of_three_), {});
    ASSERT_EQ(Validate(program_, {}), absl::OkStatus());
  }
  const Graph graph_of_three_ = ChainGraph(3);
};

TEST_F(ValidateBucketsTest, ASumWaitsForAMarkOfTheLastBackwardPass) {
  const int32_t last = Find(1, "B1[6,7)");
  EXPECT_EQ(At(1, "AR1@0").after_marks, (std::vector<PassMark>{{last, 1}}));
  EXPECT_EQ(At(1, "AR1@1").after_marks, (std::vector<PassMark>{{last, 0}}));
  At(1, "AR1@0").after_marks = {};
  ExpectBroken("device 1, AR1@0: it does not wait for B1[6,7)");
  At(1, "AR1@0").after_marks = {{Find(1, "B1[4,5)"), 1}};
  ExpectBroken("device 1, AR1@0: it does not wait for B1[6,7)");
  At(1, "AR1@0").after_marks = {};
  At(1, "AR1@0").after = {last};
  EXPECT_EQ(Validate(program_, {}), absl::OkStatus()) << "later than it may";
}

// The first bucket is updated while the second is summed.
TEST_F(ValidateBucketsTest, AStepOfAPartWaitsForItsSums) {
  const Program good = program_;
  EXPECT_EQ(At(1, "OS1@0").after, (std::vector<int32_t>{Find(1, "B1[6,7)"), Find(1, "AR1@0")}));
  EXPECT_THAT(At(1, "OS1").after, ::testing::IsSupersetOf({Find(1, "AR1@0"), Find(1, "AR1@1")}));
  std::erase(At(1, "OS1@0").after, Find(1, "AR1@0"));
  ExpectBroken("device 1, OS1@0: it does not wait for AR1@0");
  program_ = good;
  std::erase(At(1, "OS1").after, Find(1, "AR1@1"));
  ExpectBroken("device 1, OS1: it does not wait for AR1@1");
  program_ = good;
  At(1, "OS1").action.channel = 0;
  ExpectBroken("device 1, OS1@0: the stage steps twice");
  program_ = good;
  Erase(1, "OS1");
  ExpectBroken("stage 1 has 1 optimizer steps for 2 devices");
  program_ = good;
  std::swap(At(1, "OS1@0"), At(1, "B1[6,7)"));
  EXPECT_FALSE(Validate(program_, {}).ok()) << "before the last backward pass";
}

// The same with the optimizer's state shared out.
class ValidateSharesTest : public ValidateBucketsTest {
 protected:
  void SetUp() override {
    ValidateBucketsTest::SetUp();
    strategy_.optimizer_sharding = OptimizerSharding::kStates;
    program_ = *Lower(graph_of_three_, strategy_, testing::FixedCosts(100, 7, graph_of_three_), {});
    ASSERT_EQ(Validate(program_, {}), absl::OkStatus());
  }
};

TEST_F(ValidateSharesTest, WhatIsSharedOutIsScatteredAndGathered) {
  const Program good = program_;
  EXPECT_EQ(At(1, "AG1@0").after, (std::vector<int32_t>{Find(1, "OS1@0")}));
  EXPECT_EQ(At(1, "AG1@1").after, (std::vector<int32_t>{Find(1, "OS1")}));
  At(1, "RS1@0").action.kind = ActionKind::kAllReduce;
  ExpectBroken("device 1, AR1@0: the reduction's parameters are shared out by its devices");
  program_ = good;
  program_.reductions[0].sharded = false;
  ExpectBroken("device 1, RS1@0: the reduction's parameters are not shared out by its devices");
  program_ = good;
  At(1, "AG1@1").after = {Find(1, "OS1@0")};
  ExpectBroken("device 1, AG1@1: it does not wait for the step that updates them");
  program_ = good;
  At(1, "AG1@1").action.channel = 0;
  ExpectBroken("device 1, AG1@0: the device gathers these parameters twice");
  program_ = good;
  Erase(1, "AG1@1");
  ExpectBroken("device 1: the all-gather of reduction 1 is missing");
  program_ = good;
  Erase(1, "AG1@1");
  Erase(2, "AG1@1");
  ExpectBroken("device 1: the all-gather of reduction 1 is missing");
  program_ = good;
  program_.reductions[1].stages = {StageId(0), StageId(1)};
  ExpectBroken("reductions[1].sharded: what is shared out is of one stage's replicas");
}

// And the gradients of every micro-batch after its backward pass.
TEST_F(ValidateSharesTest, SharedGradientsAreSummedAfterEveryPass) {
  strategy_.optimizer_sharding = OptimizerSharding::kGradients;
  program_ = *Lower(graph_of_three_, strategy_, testing::FixedCosts(100, 7, graph_of_three_), {});
  ASSERT_EQ(Validate(program_, {}), absl::OkStatus());
  const Program good = program_;
  EXPECT_EQ(At(1, "F1[2,3)").after.back(), Find(1, "RS1[0,2)@1"));
  std::erase(At(1, "F1[2,3)").after, Find(1, "RS1[0,2)@0"));
  ExpectBroken("device 1, F1[2,3): it does not wait for RS1[0,2)@0");
  program_ = good;
  At(1, "RS1[2,4)@0").after_marks.clear();
  ExpectBroken("device 1, RS1[2,4)@0: it does not wait for B1[2,3)");
  program_ = good;
  At(1, "RS1[2,4)@0").action.samples = {0, 2};
  ExpectBroken("device 1, RS1[0,2)@0: the device sums these gradients twice");
  program_ = good;
  At(1, "RS1[2,4)@0").action.samples = {2, 3};
  ExpectBroken("device 1, RS1[2,3)@0: its samples are not a micro-batch of the stage");
  program_ = good;
  At(1, "RS1[2,4)@0").action.samples = {};
  ExpectBroken("device 1, body action 18 RS1@0: its samples are not within the mini-batch [0,8)");
  program_ = good;
  program_.reductions[0].each_pass = false;
  ExpectBroken("device 1, RS1[0,2)@0: it does not wait for B1[6,7)");
  program_ = good;
  program_.reductions[0].sharded = false;
  ExpectBroken("reductions[0].each_pass: is of what is shared out in a synchronous program");
}

// What a sum holds is held within the pass.
TEST_F(ValidateBucketsTest, ThePeakCountsSumsWithinThePass) {
  const Bytes peak = PeakMemory(program_.devices[1]);
  for (const std::string sum : {"AR1@0", "AR1@1"}) {
    At(1, sum).acquire += 1'000'000;
    At(1, sum).release += 1'000'000;
  }
  const Bytes with_sums = PeakMemory(program_.devices[1]);
  EXPECT_GT(with_sums, 1'000'000 + At(1, "B1[6,7)").acquire);
  EXPECT_LT(with_sums, 1'000'000 + peak + 100) << "one at a time";
}

// Replicas do the same, until one of them does not.
TEST_F(ValidateTest, PeaksOfAllDevicesAreThoseOfEach) {
  const auto each = [&] {
    std::vector<Bytes> peaks;
    for (const DeviceProgram& device : program_.devices) peaks.push_back(PeakMemory(device));
    return peaks;
  };
  EXPECT_EQ(PeakMemories(program_), each());
  program_.devices[1].resident += 5;
  EXPECT_EQ(PeakMemories(program_), each());
  EXPECT_EQ(PeakMemories(program_)[1], PeakMemories(program_)[0] + 5);
  Body(1).back().acquire += 1'000'000;
  EXPECT_EQ(PeakMemories(program_), each());
  EXPECT_GT(PeakMemories(program_)[1], 1'000'000);
}

// On one channel the second message waits for the first, which waits for the pass.
TEST_F(ValidateTest, PeaksDifferWhereChannelsAreShared) {
  const auto device = [](int64_t id, int32_t first, int32_t second) {
    DeviceProgram made;
    made.device = DeviceId(id);
    made.body = {{{ActionKind::kReceiveActivation, StageId(0), {0, 1}, first}, {2}, 1, 0},
                 {{ActionKind::kReceiveActivation, StageId(0), {1, 2}, second}, {}, 10, 0},
                 {{ActionKind::kForward, StageId(0), {0, 1}, -1}, {}, 50, 50}};
    return made;
  };
  Program program;
  program.devices = {device(0, 3, 4), device(1, 5, 5), device(2, 4, 3), device(3, 3, 3)};
  EXPECT_EQ(PeakMemories(program), (std::vector<Bytes>{60, 50, 60, 50}));
}

TEST_F(ValidateTest, IndicesOutOfRange) {
  At(0, "F0[0,1)").after = {99};
  ExpectBroken("device 0, body action 0 F0[0,1): it waits for action 99, which does not exist");
}

TEST_F(ValidateTest, ActionsOnTheWrongDevice) {
  program_.stages[0].devices = {DeviceId(0), DeviceId(3)};
  ExpectBroken("device 1, F0[1,2): stage 0 is not on this device");
}

TEST_F(ValidateTest, EverySampleExactlyOnce) {
  At(0, "F0[2,3)").action.samples = {0, 1};
  ExpectBroken("device 0, F0[0,1): C4: samples from 0 to 1 have their forward pass twice");
  LowerAgain();
  At(2, "F1[6,8)").action.samples = {6, 7};
  ExpectBroken("device 2, F1[6,7): C4: samples from 7 to 8 of stage 1 have no forward pass");
  LowerAgain();
  Erase(2, "B1[2,4)");
  ExpectBroken("device 2, B1[4,6): C4: samples from 2 to 4 of stage 1 have no backward pass");
}

TEST_F(ValidateTest, PassesInSampleOrder) {
  std::swap(At(0, "F0[0,1)").action.samples, At(0, "F0[2,3)").action.samples);
  ExpectBroken("device 0, F0[0,1): C4: forward passes are not in sample order");
}

TEST_F(ValidateTest, ForwardBeforeBackward) {
  std::swap(At(2, "F1[0,2)").action, At(2, "B1[0,2)").action);
  ExpectBroken("device 2, B1[0,2): C4: it comes before F1[0,2)");
}

TEST_F(ValidateTest, AMissingReceive) {
  Erase(2, "RA1[2,3)@0");
  ExpectBroken(
      "device 2, RA1[4,5)@0: it is number 1 of its channel and meets SA0[2,3)@0 of device 0");
  LowerAgain();
  Erase(2, "RA1[6,7)@0");
  ExpectBroken("device 0, SA0[6,7)@0: the send has no receive");
  Erase(0, "SA0[6,7)@0");
  ExpectBroken("device 2, F1[6,8): it waits for 1 of 2 samples' activations from stage 0");
}

TEST_F(ValidateTest, AMissingSend) {
  Erase(2, "SG1[6,7)@0");
  ExpectBroken("device 0, RG0[6,7)@0: the receive has no send");
}

TEST_F(ValidateTest, SwappedSends) {
  std::swap(At(0, "SA0[0,1)@0").action, At(0, "SA0[2,3)@0").action);
  ExpectBroken("device 2, RA1[0,1)@0: it is number 0 of its channel and meets SA0[2,3)@0");
}

TEST_F(ValidateTest, TheWrongEndOfAChannel) {
  At(0, "SA0[0,1)@0").action.channel = 1;
  ExpectBroken("device 0, SA0[0,1)@1: this end of the channel is stage 0 on device 1");
  LowerAgain();
  program_.channels[0].has_gradient = false;
  ExpectBroken("device 0, RG0[0,1)@0: the channel has no gradients");
}

TEST_F(ValidateTest, WorkThatDoesNotWait) {
  At(2, "F1[0,2)").after.pop_back();
  ExpectBroken("device 2, F1[0,2): it waits for 1 of 2 samples' activations from stage 0");
  LowerAgain();
  At(0, "B0[0,1)").after.clear();
  ExpectBroken("device 0, B0[0,1): it waits for 0 of 1 samples' gradients from stage 1");
  LowerAgain();
  At(0, "SA0[2,3)@0").after.clear();
  ExpectBroken("device 0, SA0[2,3)@0: it does not wait for the pass that makes what it sends");
  LowerAgain();
  At(0, "AR0@0").after.clear();
  ExpectBroken("device 0, AR0@0: it does not wait for B0[6,7)");
  LowerAgain();
  At(0, "OS0").after = {Find(0, "B0[6,7)")};
  ExpectBroken("device 0, OS0: it does not wait for AR0@0");
}

TEST_F(ValidateTest, AllReducesAndStepsOncePerDevice) {
  Erase(1, "AR0@0");
  ExpectBroken("device 1: the all-reduce of reduction 0 is missing");
  LowerAgain();
  Erase(2, "OS1");
  ExpectBroken("stage 1 has 0 optimizer steps for 1 devices");
  LowerAgain();
  Body(2).push_back(At(2, "OS1"));
  ExpectBroken("device 2, OS1: ");
  LowerAgain();
  program_.reductions[0].devices.pop_back();
  ExpectBroken("reduction 0: its devices are not those of its stages");
  LowerAgain();
  program_.reductions[0].stages = {StageId(2)};
  ExpectBroken("reductions[0].stages: 2");
}

// Stages 0 and 2 on device 0, and stage 1 on device 1, all use one parameter.
TEST_F(ValidateTest, TiedParametersWaitForEveryStageThatHoldsThem) {
  testing::GraphBuilder builder("tied");
  const Argument tied = builder.Weight("tied", {1, 1});
  Argument x = builder.Feature("x", {1});
  for (int layer = 0; layer < 3; ++layer) x = builder.Add("aten.linear.default", {x, tied}, {1});
  builder.Loss(x, {1});
  const Graph graph = builder.Build();
  const Strategy strategy = MakeStages(graph, 2, {{{0}, {0}, 2}, {{1}, {1}, 2}, {{2, 3}, {0}, 2}});
  const testing::FixedCosts costs(100, 7, graph);
  const Program good = *Lower(graph, strategy, costs, {});
  program_ = good;
  ASSERT_EQ(Validate(program_, {}), absl::OkStatus());
  EXPECT_THAT(program_.reductions[0].stages,
              ::testing::ElementsAre(StageId(0), StageId(1), StageId(2)));
  program_.reductions[0].stages.erase(program_.reductions[0].stages.begin());
  ExpectBroken("device 0, AR0@0: the stage is not in the reduction");
  program_ = good;
  for (const char* pass : {"B0[0,2)", "B2[0,2)"}) {
    std::erase(At(0, "AR0@0").after, Find(0, pass));
    ExpectBroken(absl::StrCat("device 0, AR0@0: it does not wait for ", pass));
    program_ = good;
  }
  for (const char* step : {"OS0", "OS2"}) {
    std::erase(At(0, step).after, Find(0, "AR0@0"));
    ExpectBroken(absl::StrCat("device 0, ", step, ": it does not wait for AR0@0"));
    program_ = good;
  }
}

TEST_F(ValidateTest, MemoryThatDoesNotReturn) {
  At(2, "B1[0,2)").release -= 3;
  ExpectBroken("device 2: memory does not return to zero: 3 bytes are left after the step");
}

TEST_F(ValidateTest, MemoryThatGetsNegative) {
  // Released too early and acquired too late: the sum is right.
  At(2, "F1[0,2)").release += 5000;
  At(2, "B1[6,8)").acquire += 5000;
  ExpectBroken("device 2: memory gets negative: ");
}

TEST_F(ValidateTest, MemoryOverTheBudget) {
  const Bytes peak = PeakMemory(program_.devices[2]);
  EXPECT_EQ(Validate(program_, {kGiB, kGiB, peak}), absl::OkStatus());
  EXPECT_EQ(Validate(program_, {kGiB}), absl::OkStatus());
  ExpectBroken("device 2, ", {kGiB, kGiB, peak - 1});
  EXPECT_THAT(std::string(Validate(program_, {kGiB, kGiB, peak - 1}).message()),
              HasSubstr("memory: " + FormatBytes(peak) + " needed here, 1 B over the budget of " +
                        FormatBytes(peak - 1)));
}

TEST_F(ValidateTest, AWaitInACircle) {
  At(2, "F1[2,4)").after.push_back(Find(2, "B1[2,4)"));
  ExpectBroken("C4: deadlock: device 0 waits at ");
  EXPECT_THAT(std::string(Validate(program_, {}).message()),
              HasSubstr("device 2 waits at F1[2,4) for B1[2,4)"));
}

TEST_F(ValidateTest, TooFewSamplesInFlightDeadlock) {
  strategy_.stages[1].schedule.in_flight = 6;
  LowerAgain();
  ExpectBroken(
      "C4: deadlock: device 0 waits at B0[0,1) for RG0[0,1)@0; device 1 waits at B0[1,2) for "
      "RG0[1,2)@1; device 2 waits at F1[4,6) for RA1[4,5)@0, RA1[5,6)@1\n");
}

TEST_F(ValidateTest, SharedDevicesReportDeadlockToo) {
  strategy_ = MakeStages(graph_, 8, {{{0}, {0}, 2}, {{1, 2}, {0}, 2}});
  strategy_.stages[0].schedule.in_flight = 2;
  strategy_.stages[1].schedule.in_flight = 4;
  LowerAgain();
  ExpectBroken("C4: deadlock: device 0 waits at ");
}

TEST_F(ValidateTest, NoBackwardWithoutTraining) {
  program_.training = false;
  ExpectBroken("device 0, RG0[0,1)@0: a program without training only runs forward");
  LowerAgain();
  program_.stages[0].has_backward = false;
  ExpectBroken("device 0, B0[0,1): the stage has no backward pass");
}

TEST_F(ValidateTest, TheMessageEndsWithTheGridAroundTheCell) {
  At(2, "B1[4,6)").after.push_back(Find(2, "F1[6,8)"));
  EXPECT_THAT(std::string(Validate(program_, {}).message()), HasSubstr(R"(
device 2 | ... B1[0,2) F1[2,4) B1[2,4) F1[4,6) >B1[4,6)< F1[6,8) B1[6,8) OS1
)"));
}

// Backward passes in two halves, as zero-bubble schedules have them.
TEST(Validate, AcceptsSplitBackwardPasses) {
  const auto program = ParseProgram(R"(program 1
batch samples=2 training=1
stage 0 nodes=0 replicated=- devices=0 micro_batch=1 backward=1
device 0 resident=0
body:
0 F0[0,1) +5
1 F0[1,2) +5
2 I0[0,1)
3 I0[1,2)
4 W0[0,1) -5
5 W0[1,2) -5
6 OS0 <5
)");
  ASSERT_EQ(program.status(), absl::OkStatus());
  EXPECT_EQ(Validate(*program, {}), absl::OkStatus());
  Program broken = *program;
  broken.devices[0].body[5].action = broken.devices[0].body[4].action;
  EXPECT_THAT(std::string(Validate(broken, {}).message()),
              HasSubstr("have their weight gradient pass twice"));
  broken = *program;
  std::swap(broken.devices[0].body[3].action, broken.devices[0].body[4].action);
  EXPECT_EQ(Validate(broken, {}), absl::OkStatus());
  std::swap(broken.devices[0].body[2].action, broken.devices[0].body[3].action);
  EXPECT_THAT(std::string(Validate(broken, {}).message()),
              HasSubstr("W0[0,1): C4: it comes before I0[0,1)"));
}

}  // namespace
}  // namespace stagewright
