// Jobs that train a small graph in this process, under plans of a test's choice.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"
#include "tests/worker_daemon/support/training_result.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {

// A job with SGD of rate 0.1 on data of these tensors, in their order, that evaluates on them, too.
// Its files are named by the running test.
class HandJob {
 public:
  HandJob(Graph graph, const std::map<std::string, at::Tensor>& data, int64_t steps);

  // What training gives under a plan.
  absl::StatusOr<TrainingResult> Train(const Strategy& strategy) const;

  DeviceJob spec;
};

}  // namespace stagewright::testing
