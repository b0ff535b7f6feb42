// What training gives, to be compared.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {

struct TrainingResult {
  std::map<std::string, at::Tensor> parameters;  // By name, aliases included.
  std::vector<double> losses;                    // Per step, over all devices.
  std::vector<EvaluationReport> evaluations;     // Added up over all devices.
  std::vector<int64_t> correct, predicted;       // Per step.
  std::vector<TraceEvent> trace;                 // Events of all devices and steps.
  std::vector<std::string> warnings;
};

// Losses and parameters of two jobs agree to `tolerance`, relatively.
void ExpectSame(const TrainingResult& found, const TrainingResult& expected,
                double tolerance = 1e-9);

}  // namespace stagewright::testing
