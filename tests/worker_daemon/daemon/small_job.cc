#include "tests/worker_daemon/daemon/small_job.h"

#include <gtest/gtest.h>

#include <random>

#include "common/wire/graph_proto.h"
#include "common/wire/strategy_proto.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {

v1::Prepare SmallJob(const std::string& stem, const std::vector<std::string>& devices) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 3});
  const int linear = make.AddLinear("linear", In(x), 3, 2);
  const int loss = make.AddNode("aten.mean.default", {Value(linear)}, {Meta({})});
  const Graph graph = make.Finish(loss);
  std::mt19937_64 random(1);
  const StrategyShape shape = {
      .stages = static_cast<int>(devices.size()), .mini_batch = 4, .micro_batches = 2};
  const auto programs = LowerBoth(graph, ForceStrategy(graph, shape, random));
  EXPECT_TRUE(programs.ok()) << programs.status();
  v1::Prepare prepare;
  prepare.set_job("jobs/1");
  prepare.set_run("jobs-1-a1");
  prepare.set_generation(3);
  v1::JobSpec* spec = prepare.mutable_spec();
  *spec->mutable_graph() = ToProto(graph);
  spec->set_weights_path(WriteWeights(graph, stem + "_weights.safetensors"));
  spec->set_output_path(TempPath(stem + "_out"));
  spec->set_mini_batch(4);
  spec->set_steps(2);
  spec->mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD);
  spec->mutable_optimizer()->set_learning_rate(0.1);
  *prepare.mutable_program() = ToProto(*programs->training);
  *prepare.mutable_evaluation_program() = ToProto(*programs->evaluation);
  for (const std::string& device : devices) {
    prepare.add_devices(prepare.devices_size());
    prepare.add_device_names(device);
  }
  return prepare;
}

}  // namespace stagewright::testing
