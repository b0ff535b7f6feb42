// A job that is interrupted and resumed under any other plan ends as one that is not.
#include "worker_daemon/executor/device_checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/training_result.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMiniBatch = 8;
constexpr int64_t kSamples = 27;
constexpr int64_t kSteps = 7;
constexpr int64_t kTaken = 4;  // In the second epoch.

// Two branches with a tied weight, dropout, a frozen parameter, a constant of the graph, an average
// that training changes and a parameter that nothing reads; float64.
Graph Branches() {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 6});
  const int tied = make.AddParameter("tied", {6, 6});
  make.data.parameters[tied].aliases = {"again"};
  const int shift = make.AddParameter("shift", {6}, /*trainable=*/false);
  std::vector<int> ends;
  for (const char* name : {"left", "right"}) {
    const int inner = make.AddLinear(name, In(x), 6, 6);
    const int tanh = make.AddNode("aten.tanh.default", {Value(inner)}, {Meta({-1, 6})});
    const int drop =
        make.AddNode("aten.dropout.default", {Value(tanh), Real(0.4), Bool(true)}, {Meta({-1, 6})});
    ends.push_back(make.AddNode("aten.linear.default", {Value(drop), Param(tied), Param(shift)},
                                {Meta({-1, 6})}));
  }
  const int sum =
      make.AddNode("aten.add.Tensor", {Value(ends[0]), Value(ends[1])}, {Meta({-1, 6})});
  const int unread = make.AddParameter("unread", {2});
  make.data.parameters[static_cast<size_t>(unread)].aliases = {"unread.too"};
  const int half = make.AddParameter("half", {}, /*trainable=*/false);
  const double value = 0.5;
  make.data.parameters[static_cast<size_t>(half)].data =
      std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  const int average = make.AddParameter("average", {}, /*trainable=*/false);
  const int next = make.AddNode("aten.add.Tensor", {Param(average), Param(half)}, {Meta({})});
  make.data.state_updates = {{ParameterId(average), {NodeId(next), 0}}};
  const int square = make.AddNode("aten.mul.Tensor", {Value(sum), Value(sum)}, {Meta({-1, 6})});
  return make.Finish(make.AddNode("aten.mean.default", {Value(square)}, {Meta({})}));
}

struct Saved {
  absl::Mutex mutex;
  std::map<int64_t, std::vector<CheckpointFile>> files;
  std::vector<absl::Status> errors;
};

class DeviceCheckpointTest : public ::testing::TestWithParam<OptimizerSpec> {
 protected:
  DeviceCheckpointTest() {
    at::set_num_threads(1);
    std::string stem = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(stem.begin(), stem.end(), '/', '_');
    spec_.graph = std::make_shared<const Graph>(Branches());
    spec_.weights_path = WriteWeights(*spec_.graph, stem + "_weights.safetensors");
    spec_.data_path = TempPath(stem + "_data.safetensors");
    WriteTensors(spec_.data_path, {{"x", Random({kSamples, 6}, 5)}});
    spec_.training.optimizer.kind = Optimizer::kAdam;
    spec_.training.optimizer.learning_rate = 0.01;
    spec_.steps = kSteps;
    spec_.seed = 11;
    root_ = TempPath(stem + "_checkpoints");
    UsePlan({.stages = 3, .micro_batches = 4}, 1);
  }

  void UsePlan(StrategyShape shape, uint64_t seed,
               OptimizerSharding sharding = OptimizerSharding::kNone) {
    shape.mini_batch = kMiniBatch;
    std::mt19937_64 random(seed);
    Strategy strategy = ForceStrategy(*spec_.graph, shape, random);
    strategy.optimizer_sharding = sharding;
    const auto programs = LowerBoth(*spec_.graph, strategy);
    ASSERT_TRUE(programs.ok()) << programs.status();
    spec_.program = programs->training;
  }

  // Trains and saves after `kTaken` steps.
  absl::StatusOr<TrainingResult> Train() {
    DeviceJob spec = spec_;
    spec.checkpoint_root = root_;
    spec.checkpoint_due = [](int64_t steps) { return steps == kTaken; };
    spec.on_checkpoint = [this](CheckpointReport report) {
      absl::MutexLock lock(&saved_.mutex);
      if (!report.status.ok()) saved_.errors.push_back(report.status);
      auto& files = saved_.files[report.step];
      files.insert(files.end(), report.files.begin(), report.files.end());
    };
    return TrainLocally(spec);
  }

  // Completes the checkpoint and opens it.
  std::shared_ptr<const Checkpoint> Open() {
    Manifest manifest;
    manifest.step = kTaken;
    manifest.samples = kTaken * kMiniBatch;
    manifest.seed = spec_.seed;
    manifest.optimizer = StateName(spec_.training.optimizer.kind);
    manifest.files = saved_.files[kTaken];
    const std::string directory = CheckpointDirectory(root_, kTaken);
    const absl::Status status = CompleteCheckpoint(directory, *spec_.graph, manifest);
    EXPECT_TRUE(status.ok()) << status;
    auto checkpoint = Checkpoint::Open(directory);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return std::make_shared<const Checkpoint>(*std::move(checkpoint));
  }

  // What a change of the job that resumes is refused with.
  template <typename Change>
  std::string Refusal(Change&& change) {
    DeviceJob spec = spec_;
    change(spec);
    return std::string(TrainLocally(spec).status().message());
  }

  DeviceJob spec_;
  std::string root_;
  Saved saved_;
};

OptimizerSpec Momentum() {
  OptimizerSpec config;
  config.learning_rate = 0.1;
  config.kind = Optimizer::kSgdMomentum;
  return config;
}

OptimizerSpec Adam() {
  OptimizerSpec config;
  config.kind = Optimizer::kAdam;
  config.learning_rate = 0.01;
  return config;
}

OptimizerSpec AdamW() {
  OptimizerSpec config = Adam();
  config.decoupled_weight_decay = true;
  config.weight_decay = 0.1;
  config.schedule.decay = Decay::kCosine;
  config.schedule.warmup_steps = 2;
  return config;
}

INSTANTIATE_TEST_SUITE_P(MomentumAdamAdamW, DeviceCheckpointTest,
                         ::testing::Values(Momentum(), Adam(), AdamW()));

TEST_P(DeviceCheckpointTest, AnyPlanGoesOnFromAnyOther) {
  spec_.training.optimizer = GetParam();
  const std::vector<StrategyShape> plans = {
      {.stages = 1, .micro_batches = 1},
      {.stages = 3, .micro_batches = 4},
      {.stages = 2, .most_replicas = 3, .micro_batches = 4},
      {.stages = 4, .most_replicas = 2, .share_devices = true, .micro_batches = 2},
  };
  UsePlan(plans[0], 1);
  const auto whole = TrainLocally(spec_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (size_t from = 0; from < plans.size(); ++from) {
    spec_.resume = nullptr;
    UsePlan(plans[from], from);
    saved_.files.clear();
    std::filesystem::remove_all(root_);
    ASSERT_TRUE(Train().ok());
    ASSERT_TRUE(saved_.errors.empty()) << saved_.errors[0];
    spec_.resume = Open();
    for (size_t to = 0; to < plans.size(); ++to) {
      SCOPED_TRACE(absl::StrCat("from plan ", from, " to plan ", to));
      UsePlan(plans[to], 10 + to);
      const auto rest = TrainLocally(spec_);
      ASSERT_TRUE(rest.ok()) << rest.status();
      ASSERT_EQ(rest->losses.size(), static_cast<size_t>(kSteps - kTaken));
      for (size_t i = 0; i < rest->losses.size(); ++i)
        EXPECT_NEAR(rest->losses[i], whole->losses[i + kTaken], 1e-12);
      for (const auto& [name, tensor] : whole->parameters)
        EXPECT_LT(RelativeError(rest->parameters.at(name), tensor), 1e-12) << name;
    }
  }
}

// Replicas that share out the optimizer's state, as many as before or others, go on from whole
// states and the other way about.
TEST_P(DeviceCheckpointTest, SharedStatesGoOnFromWholeOnesAndBack) {
  spec_.training.optimizer = GetParam();
  struct Plan {
    int replicas;
    OptimizerSharding sharding;
  };
  const std::vector<Plan> plans = {{1, OptimizerSharding::kNone},
                                   {2, OptimizerSharding::kNone},
                                   {2, OptimizerSharding::kStates},
                                   {3, OptimizerSharding::kStates},
                                   {2, OptimizerSharding::kGradients}};
  const auto use = [&](const Plan& plan) {
    Stage stage;
    for (int32_t node : spec_.graph->dag().order()) stage.nodes.push_back(NodeId(node));
    stage.micro_batch = kMiniBatch / 2;
    stage.schedule = {stage.micro_batch, 1};
    for (int r = 0; r < plan.replicas; ++r) stage.devices.push_back(DeviceId(r));
    Strategy strategy;
    strategy.mini_batch = kMiniBatch;
    strategy.stages = {std::move(stage)};
    strategy.optimizer_sharding = plan.sharding;
    strategy.bucket_bytes = Bytes(100);
    const auto programs = LowerBoth(*spec_.graph, strategy);
    ASSERT_TRUE(programs.ok()) << programs.status();
    spec_.program = programs->training;
  };
  use(plans[0]);
  const auto whole = TrainLocally(spec_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (size_t from = 0; from < plans.size(); ++from) {
    spec_.resume = nullptr;
    use(plans[from]);
    saved_.files.clear();
    std::filesystem::remove_all(root_);
    ASSERT_TRUE(Train().ok());
    ASSERT_TRUE(saved_.errors.empty()) << saved_.errors[0];
    spec_.resume = Open();
    // Whoever reads it sees no shares.
    for (const auto& [name, view] : spec_.resume->OptimizerState("left.weight"))
      EXPECT_THAT(name, ::testing::Not(HasSubstr("@")));
    for (size_t to = 0; to < plans.size(); ++to) {
      SCOPED_TRACE(absl::StrCat("from plan ", from, " to plan ", to));
      use(plans[to]);
      const auto rest = TrainLocally(spec_);
      ASSERT_TRUE(rest.ok()) << rest.status();
      ASSERT_EQ(rest->losses.size(), static_cast<size_t>(kSteps - kTaken));
      for (size_t i = 0; i < rest->losses.size(); ++i)
        EXPECT_NEAR(rest->losses[i], whole->losses[i + kTaken], 1e-12);
      for (const auto& [name, tensor] : whole->parameters)
        EXPECT_LT(RelativeError(rest->parameters.at(name), tensor), 1e-12) << name;
    }
  }
}

using DeviceCheckpointTestOnce = DeviceCheckpointTest;
INSTANTIATE_TEST_SUITE_P(Once, DeviceCheckpointTestOnce, ::testing::Values(Adam()));

// A device's checkpoints while the storage waits for a notification.
class SlowStorageTest : public DeviceCheckpointTest {
 protected:
  void SetUp() override {
    std::vector<ParameterId> ids;
    for (size_t i = 0; i < spec_.graph->parameters().size(); ++i)
      ids.push_back(ParameterId(static_cast<int64_t>(i)));
    auto loaded = ParameterStore::Load(*spec_.graph, ids, spec_.weights_path, at::kCPU);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    parameters_.emplace(*std::move(loaded));
    optimizer_.emplace(spec_.training.optimizer, *parameters_, GroupsOf({}, *spec_.graph));
    spec_.device = spec_.program->devices.front().device;
    spec_.checkpoint_root = root_;
    spec_.may_write = [this] {
      storage_.WaitForNotification();
      return absl::OkStatus();
    };
    spec_.on_checkpoint = [this](const CheckpointReport& report) {
      absl::MutexLock lock(&saved_.mutex);
      (report.skipped ? skipped_ : written_).push_back(report.step);
      if (report.skipped) waited_ += report.stall;
      EXPECT_EQ(report.status.ok(), !report.skipped) << report.status;
    };
    checkpoint_.emplace(spec_, *parameters_, *optimizer_, nullptr);
  }

  absl::Notification storage_;
  std::optional<ParameterStore> parameters_;
  std::optional<ParameterOptimizer> optimizer_;
  std::optional<DeviceCheckpoint> checkpoint_;
  std::vector<int64_t> written_, skipped_;  // Steps.
  absl::Duration waited_;                   // For those that were skipped.
};

INSTANTIATE_TEST_SUITE_P(Once, SlowStorageTest, ::testing::Values(Adam()));

TEST_P(SlowStorageTest, TheNextOneIsTakenWhenTheLastIsWritten) {
  checkpoint_->Begin(1);
  absl::Notification begun;
  std::thread device([&] {
    checkpoint_->Begin(2);
    begun.Notify();
  });
  EXPECT_FALSE(begun.WaitForNotificationWithTimeout(absl::Milliseconds(100)));
  storage_.Notify();
  device.join();
  checkpoint_->AwaitWritten();
  EXPECT_THAT(written_, ElementsAre(1, 2));
  EXPECT_THAT(skipped_, IsEmpty());
}

TEST_P(SlowStorageTest, OneThatIsAwaitedIsWrittenBeforeTrainingGoesOn) {
  spec_.await_checkpoints = true;
  absl::Notification begun;
  std::thread device([&] {
    checkpoint_->Begin(1);
    begun.Notify();
  });
  EXPECT_FALSE(begun.WaitForNotificationWithTimeout(absl::Milliseconds(100)));
  storage_.Notify();
  device.join();
  absl::MutexLock lock(&saved_.mutex);
  EXPECT_THAT(written_, ElementsAre(1));
}

TEST_P(SlowStorageTest, StorageThatHangsIsNotAwaitedWithoutEnd) {
  spec_.await_checkpoints = true;
  spec_.step_timeout = absl::Milliseconds(20);
  checkpoint_->Begin(1);  // Returns.
  spec_.step_timeout = absl::InfiniteDuration();
  checkpoint_->Begin(2);  // Returns.
  EXPECT_THAT(skipped_, ElementsAre(2));
  storage_.Notify();
  checkpoint_->AwaitWritten();
  EXPECT_THAT(written_, ElementsAre(1));
}

TEST_P(SlowStorageTest, StorageThatHangsIsWaitedForOnce) {
  spec_.step_timeout = absl::Milliseconds(20);
  checkpoint_->Begin(1);
  checkpoint_->Begin(2);
  spec_.step_timeout = absl::InfiniteDuration();
  checkpoint_->Begin(3);  // Returns.
  EXPECT_THAT(skipped_, ElementsAre(2, 3));
  EXPECT_GE(waited_, absl::Milliseconds(10));  // Half of the longest step.
  storage_.Notify();
  checkpoint_->AwaitWritten();
  checkpoint_->Begin(4);
  checkpoint_->AwaitWritten();
  EXPECT_THAT(written_, ElementsAre(1, 4));
}

TEST_P(DeviceCheckpointTestOnce, StorageThatHangsIsNotWaitedForWithoutEndBeforeAHoldEither) {
  UsePlan({.stages = 1, .micro_batches = 1}, 1);
  constexpr int64_t kHeld = kTaken + 1;
  absl::Notification storage;
  int64_t done = 0;
  std::vector<int64_t> written, skipped;  // Steps.
  absl::Mutex mutex;
  spec_.step_timeout = absl::Seconds(2);
  spec_.checkpoint_root = root_;
  spec_.checkpoint_due = [&](int64_t steps) {
    done = steps;
    return steps == kTaken || steps == kHeld;
  };
  spec_.holds = [&] { return done == kHeld; };
  spec_.await_go_on = [&] { storage.Notify(); };
  spec_.may_write = [&] {
    storage.WaitForNotification();
    return absl::OkStatus();
  };
  spec_.on_checkpoint = [&](const CheckpointReport& report) {
    absl::MutexLock lock(&mutex);
    (report.skipped ? skipped : written).push_back(report.step);
  };
  const auto trained = TrainLocally(spec_);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_THAT(written, ElementsAre(kTaken));
  EXPECT_THAT(skipped, ElementsAre(kHeld));
}

TEST_P(DeviceCheckpointTestOnce, WhatDoesNotContinueTheRunIsRefused) {
  ASSERT_TRUE(Train().ok());
  spec_.resume = Open();
  EXPECT_THAT(Refusal([](DeviceJob& spec) { spec.seed = 12; }), HasSubstr("seed 11"));
  EXPECT_THAT(Refusal([](DeviceJob& spec) { spec.order = SampleOrder::kSequential; }),
              HasSubstr("with shuffling"));
  EXPECT_THAT(Refusal([](DeviceJob& spec) { spec.training.optimizer.kind = Optimizer::kSgd; }),
              HasSubstr("of optimizer adam, the job has sgd"));
  EXPECT_THAT(Refusal([](DeviceJob& spec) { spec.steps = int64_t{1} << 60; }),
              HasSubstr("mini-batches of 8 samples are not from 1 to"));
  EXPECT_THAT(Refusal([](DeviceJob& spec) { spec.steps = kTaken; }),
              HasSubstr("nothing is left to do"));
  EXPECT_THAT(Refusal([](DeviceJob& spec) {
                GraphMaker make;
                make.data = spec.graph->data();
                make.data.parameters[0].name = "renamed";
                make.data.parameters[0].aliases.clear();
                spec.graph = std::make_shared<const Graph>(*Graph::Create(std::move(make.data)));
              }),
              HasSubstr("there is no tensor \"renamed\""));
}

// On the way as at the end: what the module has, and nothing else.
TEST_P(DeviceCheckpointTestOnce, HasEveryTensorOfTheModule) {
  auto weights = ReadTensors(spec_.weights_path);
  ASSERT_TRUE(weights.ok());
  // A tensor that the graph does not know.
  weights->emplace("steps", at::full({}, 3.0, at::kDouble));
  WriteTensors(spec_.weights_path, *weights);
  for (const StrategyShape& shape : {StrategyShape{.stages = 1, .micro_batches = 1},
                                     StrategyShape{.stages = 4, .most_replicas = 2}}) {
    UsePlan(shape, 7);
    saved_.files.clear();
    std::filesystem::remove_all(root_);
    const auto trained = Train();
    ASSERT_TRUE(trained.ok()) << trained.status();
    const auto checkpoint = Open();
    std::vector<std::string> names, expected;
    for (const auto& [name, file] : checkpoint->manifest().weight_map) names.push_back(name);
    for (const auto& [name, tensor] : *weights) expected.push_back(name);
    EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(expected));
    const double before = weights->at("average").item<double>();
    double average = 0, steps = 0;
    const auto read = [&](const char* name, double& value) {
      return ReadTensor(*checkpoint->Weight(name), std::as_writable_bytes(std::span(&value, 1)));
    };
    ASSERT_TRUE(read("average", average).ok() && read("steps", steps).ok());
    EXPECT_DOUBLE_EQ(average, before + 0.5 * kTaken);
    EXPECT_EQ(steps, 3);
    names.clear();
    for (const auto& [name, tensor] : trained->parameters) names.push_back(name);
    expected.insert(expected.end(), {"again", "unread.too"});
    EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(expected));
    EXPECT_DOUBLE_EQ(trained->parameters.at("average").item<double>(), before + 0.5 * kSteps);
  }
}

TEST_P(DeviceCheckpointTestOnce, WhatCannotBeWrittenIsToldAndTrainingGoesOn) {
  const auto whole = TrainLocally(spec_);
  ASSERT_TRUE(whole.ok());
  std::filesystem::create_directories(root_);
  // A file in the place of the directory: this stops even the superuser.
  std::ofstream(CheckpointDirectory(root_, kTaken)) << "in the way";
  const auto trained = Train();
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_EQ(trained->losses, whole->losses);
  ASSERT_FALSE(saved_.errors.empty());
  EXPECT_THAT(std::string(saved_.errors[0].message()),
              HasSubstr(CheckpointDirectory(root_, kTaken)));
}

TEST_P(DeviceCheckpointTestOnce, SavingChangesNothing) {
  const auto whole = TrainLocally(spec_);
  const auto saved = Train();
  ASSERT_TRUE(whole.ok() && saved.ok());
  EXPECT_EQ(whole->losses, saved->losses);
}

}  // namespace
}  // namespace stagewright::testing
