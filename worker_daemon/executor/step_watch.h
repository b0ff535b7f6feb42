// What goes into a job's records of its steps, taken from one device (step_record.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/update/optimizer.h"

namespace stagewright {

// Sees every step of a job on a device. Calls come from the thread that computes.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  // `step` of the job, from 0.
  virtual absl::Status BeginStep(int64_t step) = 0;
  // See ParameterOptimizer::SetOnGradient.
  virtual void OnGradient(ParameterId id, at::Tensor& gradient) = 0;
  // Parameters have been updated; `loss` is the device's share.
  virtual absl::Status EndStep(int64_t step, double loss) = 0;
};

// One that writes records, or compares with those there are (step_comparison.h). All arguments
// outlive it. REQUIRES: spec.records.steps > 0.
std::unique_ptr<StepWatch> MakeStepWatch(const DeviceJob& spec, const ParameterStore& parameters,
                                         const ParameterOptimizer& optimizer);

}  // namespace stagewright
