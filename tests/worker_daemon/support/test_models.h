// The models of tests/data/export_models.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/program/program.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {

// A file beside the models.
std::string ModelPath(const std::string& name);

struct Model {
  std::string name;  // "chain_f64"
  std::shared_ptr<const Graph> graph;
  std::string weights, data;  // Paths.

  // How far results may be from the reference, relative.
  double tolerance() const { return name.ends_with("_f64") ? 1e-9 : 1e-5; }
};

Model LoadModel(const std::string& name);

// A job that trains the model from its weights on its data, in the order of its samples, with a
// learning rate that suits the optimizer.
DeviceJob JobOf(const Model& model, std::shared_ptr<const Program> program, Optimizer optimizer,
                int64_t steps);

}  // namespace stagewright::testing
