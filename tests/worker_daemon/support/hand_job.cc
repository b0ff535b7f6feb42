#include "tests/worker_daemon/support/hand_job.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "common/base/status.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {

HandJob::HandJob(Graph graph, const std::map<std::string, at::Tensor>& data, int64_t steps) {
  at::set_num_threads(1);
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string stem = std::string(test->test_suite_name()) + "_" + test->name();
  spec.graph = std::make_shared<const Graph>(std::move(graph));
  spec.weights_path = WriteWeights(*spec.graph, stem + "_weights.safetensors");
  spec.data_path = spec.evaluation_path = TempPath(stem + "_data.safetensors");
  WriteTensors(spec.data_path, data);
  spec.training.optimizer.kind = Optimizer::kSgd;
  spec.training.optimizer.learning_rate = 0.1;
  spec.order = SampleOrder::kSequential;
  spec.steps = steps;
  spec.seed = 9;
  spec.step_timeout = absl::Seconds(30);
}

absl::StatusOr<TrainingResult> HandJob::Train(const Strategy& strategy) const {
  ASSIGN_OR_RETURN(const Programs programs, LowerBoth(*spec.graph, strategy));
  DeviceJob own = spec;
  own.program = programs.training;
  own.evaluation = programs.evaluation;
  return TrainLocally(own);
}

}  // namespace stagewright::testing
