#include "tests/worker_daemon/support/test_models.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/wire/graph_file.h"

namespace stagewright::testing {

std::string ModelPath(const std::string& name) {
  return absl::StrCat(STAGEWRIGHT_TEST_MODELS, "/", name);
}

Model LoadModel(const std::string& name) {
  auto graph = ReadGraphFile(ModelPath(name + ".swg"));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return {name, std::make_shared<const Graph>(*std::move(graph)), ModelPath(name + ".safetensors"),
          ModelPath(name + ".data.safetensors")};
}

DeviceJob JobOf(const Model& model, std::shared_ptr<const Program> program, Optimizer optimizer,
                int64_t steps) {
  DeviceJob job;
  job.graph = model.graph;
  job.program = std::move(program);
  job.weights_path = model.weights;
  job.data_path = model.data;
  job.training.optimizer.kind = optimizer;
  job.training.optimizer.learning_rate = optimizer == Optimizer::kSgd ? 0.1 : 1e-3;
  job.steps = steps;
  job.seed = 42;
  job.order = SampleOrder::kSequential;
  return job;
}

}  // namespace stagewright::testing
