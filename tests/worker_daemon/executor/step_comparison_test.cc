// Steps of any plan equal those of a single device, and a plan that does not compute what the
// graph says is found out.
#include "worker_daemon/executor/step_comparison.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "common/data/safetensors_writer.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/checkpoint/step_record.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMiniBatch = 8;
constexpr int64_t kSamples = 27;
constexpr int64_t kSteps = 3;
constexpr int64_t kTime = 4;

// linear, dropout, linear, and the mean of squares.
Graph Chain(LossReduction reduction = LossReduction::kMean) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 6});
  const int first = make.AddLinear("first", In(x), 6, 6);
  const int drop =
      make.AddNode("aten.dropout.default", {Value(first), Real(0.4), Bool(true)}, {Meta({-1, 6})});
  const int second = make.AddLinear("second", Value(drop), 6, 6);
  const int square =
      make.AddNode("aten.mul.Tensor", {Value(second), Value(second)}, {Meta({-1, 6})});
  return make.Finish(make.AddNode("aten.mean.default", {Value(square)}, {Meta({})}), -1, reduction);
}

// Rows of `before` are time-major: [time * samples, 6].
Graph TimeMajorSaidToBeSampleMajor() {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, kTime, 6});
  const int turned =
      make.AddNode("aten.transpose.int", {In(x), Int(0), Int(1)}, {Meta({kTime, -1, 6})});
  TensorMeta rows;
  rows.dtype = DType::kFloat64;
  rows.shape = {{kTime, 0}, {0, 6}};
  rows.layout = SampleLayout{0, 1};
  make.data.nodes[turned].outputs[0].layout = SampleLayout{1, 1};
  const int flat =
      make.AddNode("aten.reshape.default", {Value(turned), List({Batch(kTime), Int(6)})}, {rows});
  const int before = make.AddLinear("before", Value(flat), 6, 6);
  make.data.nodes[before].outputs[0] = rows;
  const int after = make.AddLinear("after", Value(before), 6, 6);
  make.data.nodes[after].outputs[0] = rows;
  const int steps =
      make.AddNode("aten.view.default", {Value(after), List({Int(kTime), Batch(), Int(6)})},
                   {Meta({kTime, -1, 6})});
  make.data.nodes[steps].outputs[0].layout = SampleLayout{1, 1};
  const int back =
      make.AddNode("aten.transpose.int", {Value(steps), Int(0), Int(1)}, {Meta({-1, kTime, 6})});
  const int product = make.AddNode("aten.mul.Tensor", {Value(back), In(x)}, {Meta({-1, kTime, 6})});
  const int square =
      make.AddNode("aten.mul.Tensor", {Value(product), Value(product)}, {Meta({-1, kTime, 6})});
  return make.Finish(make.AddNode("aten.mean.default", {Value(square)}, {Meta({})}));
}

class StepComparisonTest : public ::testing::Test {
 protected:
  StepComparisonTest() {
    at::set_num_threads(1);
    stem_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    spec_.training.optimizer.kind = Optimizer::kAdam;
    spec_.training.optimizer.learning_rate = 0.01;
    spec_.steps = 5;
    spec_.seed = 11;
    spec_.records.output_path = TempPath(stem_ + "_records");
    spec_.records.steps = kSteps;
    std::filesystem::remove_all(spec_.records.output_path);
  }

  void Use(Graph graph, std::vector<int64_t> sample = {6}) {
    spec_.graph = std::make_shared<const Graph>(std::move(graph));
    spec_.weights_path = WriteWeights(*spec_.graph, stem_ + "_weights.safetensors");
    spec_.data_path = TempPath(stem_ + "_data.safetensors");
    sample.insert(sample.begin(), kSamples);
    WriteTensors(spec_.data_path, {{"x", Random(sample, 5)}});
  }

  void UsePlan(StrategyShape shape, uint64_t seed = 1) {
    shape.mini_batch = kMiniBatch;
    std::mt19937_64 random(seed);
    UseStrategy(ForceStrategy(*spec_.graph, shape, random));
  }

  void UseStrategy(const Strategy& strategy) {
    const auto programs = LowerBoth(*spec_.graph, strategy);
    ASSERT_TRUE(programs.ok()) << programs.status();
    spec_.program = programs->training;
  }

  // The plan's steps are recorded; an error of the single device that compares with them.
  absl::Status Compare() {
    const auto planned = TrainLocally(spec_);
    EXPECT_TRUE(planned.ok()) << planned.status();
    if (!planned.ok()) return planned.status();
    EXPECT_EQ(planned->losses.size(), static_cast<size_t>(kSteps));
    return CompareAlone();
  }

  absl::Status CompareAlone() {
    UsePlan({.stages = 1, .micro_batches = 1});
    spec_.records.compare = true;
    const absl::Status status = TrainLocally(spec_).status();
    spec_.records.compare = false;
    return status;
  }

  // Changes a tensor that the device recorded of a step.
  void Spoil(int64_t step, const std::string& name, double by) {
    const std::string path = absl::StrCat(spec_.records.output_path, "/steps/step-000000000", step,
                                          "/device-00000.safetensors");
    auto tensors = ReadTensors(path);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    ASSERT_TRUE(tensors->contains(name)) << name;
    tensors->at(name).flatten()[3] += by;
    const auto file = SafetensorsFile::Open(path);
    std::vector<TensorView> views = file->tensors();
    for (TensorView& view : views) {
      const at::Tensor& tensor = tensors->at(view.name);
      view.data = {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
      view.file = nullptr;
    }
    ASSERT_TRUE(WriteSafetensors(path, views, file->metadata()).ok());
  }

  std::string stem_;
  DeviceJob spec_;
};

TEST_F(StepComparisonTest, EveryPlanComputesWhatASingleDeviceDoes) {
  Use(Chain());
  for (const StrategyShape& shape :
       {StrategyShape{.stages = 3, .micro_batches = 4},
        StrategyShape{.stages = 2, .most_replicas = 3, .micro_batches = 4},
        StrategyShape{.stages = 4, .share_devices = true, .recompute = true}}) {
    std::filesystem::remove_all(spec_.records.output_path);
    UsePlan(shape);
    const absl::Status status = Compare();
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Replicas record their shares of gradients and states, wherever they keep those.
TEST_F(StepComparisonTest, SharedStatesAreThoseOfASingleDevice) {
  Use(Chain());
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    std::filesystem::remove_all(spec_.records.output_path);
    std::mt19937_64 random(seed);
    StrategyShape shape{
        .stages = 2, .mini_batch = kMiniBatch, .most_replicas = 3, .micro_batches = 2};
    Strategy strategy = ForceStrategy(*spec_.graph, shape, random);
    strategy.optimizer_sharding =
        seed == 2 ? OptimizerSharding::kGradients : OptimizerSharding::kStates;
    UseStrategy(strategy);
    const absl::Status status = Compare();
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(StepComparisonTest, RowsThatAreNotWhereTheGraphSaysAreFound) {
  Use(TimeMajorSaidToBeSampleMajor(), {kTime, 6});
  // One device, then two replicas: the rows are dealt out as if they were sample-major.
  Strategy strategy;
  strategy.mini_batch = kMiniBatch;
  const auto& order = spec_.graph->dag().order();
  const auto cut =
      std::find_if(order.begin(), order.end(),
                   [&](int32_t v) { return !spec_.graph->Parameters(NodeId(v)).empty(); }) +
      1;
  for (const bool second : {false, true}) {
    Stage& stage = strategy.stages.emplace_back();
    for (auto v = second ? cut : order.begin(); v != (second ? order.end() : cut); ++v)
      stage.nodes.emplace_back(*v);
    stage.micro_batch = kMiniBatch;
    stage.schedule.in_flight = kMiniBatch;
    stage.devices = second ? std::vector<DeviceId>{DeviceId(1), DeviceId(2)}
                           : std::vector<DeviceId>{DeviceId(0)};
  }
  strategy.edges = DataEdges(*spec_.graph, strategy.stages);
  UseStrategy(strategy);
  const absl::Status status = Compare();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step 0: the gradient of \"before.weight\" differs: at ["),
                    HasSubstr("% is rounding"), HasSubstr("the loss is ")));
}

TEST_F(StepComparisonTest, ALossThatIsNoSumIsFound) {
  Use(Chain(LossReduction::kSum));  // It is a mean.
  UsePlan({.stages = 2, .micro_batches = 4});
  const absl::Status status = Compare();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step 0: the gradient of \"first.weight\" differs"),
                    HasSubstr("the loss is "), HasSubstr("on device ")));
}

TEST_F(StepComparisonTest, TheTensorTheStepAndThePlaceAreNamed) {
  Use(Chain());
  UsePlan({.stages = 1, .micro_batches = 4});
  struct Case {
    const char* tensor;
    double by;
    const char* message;
  };
  for (const Case& c : {Case{"gradient/second.bias", 1.0,
                             "step 1: the gradient of \"second.bias\" differs: at [3]"},
                        Case{"parameter/first.weight", 1e-6,
                             "step 1: parameter \"first.weight\" differs: at [0, 3]"},
                        Case{"state/second.bias.exp_avg", 1.0,
                             "step 1: optimizer state \"second.bias.exp_avg\" differs: at [3]"}}) {
    std::filesystem::remove_all(spec_.records.output_path);
    ASSERT_TRUE(TrainLocally(spec_).ok());
    Spoil(1, c.tensor, c.by);
    const absl::Status status = CompareAlone();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << c.tensor << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("the loss is")));
    UsePlan({.stages = 1, .micro_batches = 4});
  }
}

TEST_F(StepComparisonTest, WhatIsMissingIsSaid) {
  Use(Chain());
  const absl::Status none = CompareAlone();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr(spec_.records.output_path));
  UsePlan({.stages = 3, .micro_batches = 4});
  spec_.records.compare = true;
  EXPECT_THAT(std::string(TrainLocally(spec_).status().message()),
              HasSubstr("records.compare: the program must be of a single device"));
}

TEST(ToleranceTest, IsTighterForTypesThatRoundLess) {
  EXPECT_LT(ToleranceOf(DType::kFloat64).relative, ToleranceOf(DType::kFloat32).relative);
  EXPECT_LT(ToleranceOf(DType::kFloat32).relative, ToleranceOf(DType::kFloat16).relative);
  EXPECT_LT(ToleranceOf(DType::kFloat16).relative, ToleranceOf(DType::kBFloat16).relative);
  EXPECT_EQ(ToleranceOf(DType::kInt64).relative, 0);
}

}  // namespace
}  // namespace stagewright::testing
