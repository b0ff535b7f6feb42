// What a job records of its steps is what happened in them.
#include "worker_daemon/executor/step_watch.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/checkpoint/step_record.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {
namespace {

TEST(StepWatchTest, ARecordHasGradientsStateAndLossOfTheStep) {
  at::set_num_threads(1);
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 3});
  const int linear = make.AddLinear("only", In(x), 3, 2);
  const int square =
      make.AddNode("aten.mul.Tensor", {Value(linear), Value(linear)}, {Meta({-1, 2})});
  DeviceJob spec;
  spec.graph = std::make_shared<const Graph>(
      make.Finish(make.AddNode("aten.mean.default", {Value(square)}, {Meta({})})));
  spec.weights_path = WriteWeights(*spec.graph, "record_weights.safetensors");
  spec.data_path = TempPath("record_data.safetensors");
  const at::Tensor data = Random({4, 3}, 5);
  WriteTensors(spec.data_path, {{"x", data}});
  spec.order = SampleOrder::kSequential;
  spec.training.optimizer.learning_rate = 0.5;
  spec.training.optimizer.kind = Optimizer::kSgdMomentum;
  spec.steps = 3;
  spec.records = {.steps = 1, .output_path = TempPath("record")};
  std::mt19937_64 random(1);
  const auto programs = LowerBoth(
      *spec.graph, ForceStrategy(*spec.graph, {.mini_batch = 4, .micro_batches = 2}, random));
  ASSERT_TRUE(programs.ok()) << programs.status();
  spec.program = programs->training;
  const auto trained = TrainLocally(spec);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_EQ(trained->losses.size(), 1u);  // The job ends after the records.

  auto weights = ReadTensors(spec.weights_path);
  ASSERT_TRUE(weights.ok());
  const at::Tensor out = at::linear(data, weights->at("only.weight"), weights->at("only.bias"));
  const at::Tensor gradient = (2 * out / 8).t().matmul(data);
  const auto record = StepRecord::Open(spec.records.output_path, 0);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_NEAR(record->loss(), out.square().mean().item<double>(), 1e-12);
  const auto recorded = [&](const std::string& name) {
    const auto copies = record->Find(name);
    EXPECT_EQ(copies.size(), 1u) << name;
    return at::from_blob(const_cast<std::byte*>(copies[0].tensor->data.data()),
                         copies[0].tensor->shape, at::kDouble)
        .clone();
  };
  EXPECT_LT(RelativeError(recorded("gradient/only.weight"), gradient), 1e-12);
  EXPECT_LT(RelativeError(recorded("state/only.weight.momentum_buffer"), gradient), 1e-12);
  EXPECT_LT(
      RelativeError(recorded("parameter/only.weight"), weights->at("only.weight") - 0.5 * gradient),
      1e-12);
  EXPECT_EQ(StepRecord::Open(spec.records.output_path, 1).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stagewright::testing
