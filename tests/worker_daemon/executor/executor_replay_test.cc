// What is simulated is what runs: the trace of a job follows its program, and replaying measured
// durations through the simulator gives the measured step time.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>

#include "common/program/trace.h"
#include "planner_service/simulator/measured_durations.h"
#include "planner_service/simulator/simulator.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {
namespace {

constexpr int64_t kWidth = 640;
constexpr int64_t kMiniBatch = 64;
constexpr int64_t kSteps = 8;

// Two branches of linear layers that meet, heavy enough for the clock.
Graph Wide() {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, kWidth});
  const int target = make.AddInput("target", {-1, kWidth});
  int heads[2];
  for (int branch = 0; branch < 2; ++branch) {
    Argument value = In(x);
    for (int layer = 0; layer < 3; ++layer) {
      const std::string name = "b" + std::to_string(branch) + "." + std::to_string(layer);
      const int linear = make.AddLinear(name, value, kWidth, kWidth);
      value = Value(make.AddNode("aten.tanh.default", {Value(linear)}, {Meta({-1, kWidth})}));
      heads[branch] = std::get<ValueRef>(value.value).node.value();
    }
  }
  const int sum =
      make.AddNode("aten.add.Tensor", {Value(heads[0]), Value(heads[1])}, {Meta({-1, kWidth})});
  const int out = make.AddLinear("head", Value(sum), kWidth, kWidth);
  const int loss = make.AddNode("aten.mse_loss.default", {Value(out), In(target)}, {Meta({})});
  return make.Finish(loss, out);
}

class Replay : public ::testing::TestWithParam<StrategyShape> {};

TEST_P(Replay, OfMeasuredDurationsGivesTheMeasuredStepTime) {
  at::set_num_threads(1);
  const auto graph = std::make_shared<const Graph>(Wide());
  const std::string data = TempPath("replay_data.safetensors");
  WriteTensors(
      data, {{"x", Random({kMiniBatch, kWidth}, 1)}, {"target", Random({kMiniBatch, kWidth}, 2)}});
  std::mt19937_64 random(5);
  const auto programs = LowerBoth(*graph, ForceStrategy(*graph, GetParam(), random));
  ASSERT_TRUE(programs.ok()) << programs.status();
  DeviceJob spec;
  spec.graph = graph;
  spec.program = programs->training;
  spec.weights_path = WriteWeights(*graph, "replay_weights.safetensors");
  spec.data_path = data;
  spec.steps = kSteps;
  // Steps start together, as the simulator has it.
  std::barrier step_end(static_cast<std::ptrdiff_t>(spec.program->devices.size()));
  const auto result = TrainLocally(spec, [&](DeviceJob& own) {
    own.on_step = [&step_end, report = own.on_step](StepReport step) {
      report(std::move(step));
      step_end.arrive_and_wait();
    };
  });
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(CheckTrace(*spec.program, result->trace).ok());
  std::vector<double> errors;
  for (int32_t step = 1; step < kSteps; ++step) {  // The first one warms up.
    Nanos start = std::numeric_limits<Nanos>::max(), end = 0;
    for (const TraceEvent& event : result->trace) {
      if (event.step != step) continue;
      // Receives are posted early by devices that wake up before the step has work for them.
      if (IsCompute(event.action.kind)) start = std::min(start, event.start);
      end = std::max(end, event.end);
    }
    const auto durations = MakeMeasuredDurations(*spec.program, result->trace, step);
    ASSERT_TRUE(durations.ok()) << durations.status();
    const auto simulation = Simulate(*spec.program, **durations, {});
    ASSERT_TRUE(simulation.ok()) << simulation.status();
    errors.push_back(std::abs(
        static_cast<double>(simulation->step_time) / static_cast<double>(end - start) - 1));
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[errors.size() / 2], 0.1) << "worst: " << errors.back();
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Replay,
    ::testing::Values(StrategyShape{.stages = 1, .mini_batch = kMiniBatch, .micro_batches = 4},
                      StrategyShape{.stages = 2, .mini_batch = kMiniBatch, .micro_batches = 4},
                      StrategyShape{.stages = 4, .mini_batch = kMiniBatch, .micro_batches = 4},
                      StrategyShape{.stages = 4, .mini_batch = kMiniBatch, .most_replicas = 2},
                      StrategyShape{.stages = 4,
                                    .mini_batch = kMiniBatch,
                                    .micro_batches = 4,
                                    .kind = StrategyKind::kSequential},
                      StrategyShape{.stages = 5,
                                    .mini_batch = kMiniBatch,
                                    .share_devices = true,
                                    .micro_batches = 4}));

}  // namespace
}  // namespace stagewright::testing
