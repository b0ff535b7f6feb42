// Compares the steps of a job on a single device with what another job recorded of them, under
// another plan: the loss, every gradient, then parameters, buffers and optimizer state.
//
// Results are equal up to rounding, which depends on the order of sums. Rounding does not stay
// small by itself: Adam divides a gradient by its own size, so that one that is nothing but
// rounding makes an update of full size in either direction. Hence the recorded gradients, once
// they are compared, take the place of the device's own. What the optimizer makes of equal
// gradients is the same to the last bits, and every step starts from equal parameters.
//
// An entry may be off by `relative` times the largest of its tensor, because that is what the terms
// of a sum are like, and by `floor` times the largest of all gradients (or of all buffers): terms
// of that size may cancel, as in the bias of the keys of an attention, whose gradient is rounding
// alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker_daemon/checkpoint/step_record.h"
#include "worker_daemon/executor/step_watch.h"

namespace stagewright {

// What is rounding, by the type that passes compute in.
struct Tolerance {
  double relative = 0;
  double floor = 0;
  double loss = 0;    // A share of the loss, which counts as 0.1 where it is smaller.
  double update = 0;  // A share of what an optimizer makes of equal gradients.
};
Tolerance ToleranceOf(DType dtype);

class StepComparison : public StepWatch {
 public:
  StepComparison(const DeviceJob& spec, const ParameterStore& parameters,
                 const ParameterOptimizer& optimizer);

  // Errors of StepRecord::Open.
  absl::Status BeginStep(int64_t step) override;
  void OnGradient(ParameterId id, at::Tensor& gradient) override;
  // ABORTED names the step, the first tensor that differs, where and by how much: gradients in the
  // order of the graph's parameters, then parameters and buffers, then optimizer state.
  absl::Status EndStep(int64_t step, double loss) override;

 private:
  // The entry of a tensor at which a recorded copy is farthest from the device's own.
  struct Distance {
    DeviceId device;  // The device that recorded the copy.
    std::vector<int64_t> index;
    double recorded = 0, own = 0;
    double difference = 0;
    double largest = 0;  // Entry of the device's own.
  };
  // A tensor of the step.
  struct Compared {
    std::string what;  // "the gradient of \"a.weight\"".
    std::optional<Distance> distance;
    std::string missing;  // Instead of a distance: "under the plan", "on the single device".
    double relative = 0;  // Tolerance.
    double floor = 0;
  };

  // What a device recorded of a tensor: all of it, or the slices that the plan had.
  struct Recorded {
    DeviceId device;
    std::vector<const TensorView*> slices;
  };
  using NameOf = std::function<std::string(const std::string&)>;  // In the record.

  std::vector<Recorded> Find(const std::string& parameter, const NameOf& name_of) const;
  Compared Compare(std::string what, const std::string& parameter, const NameOf& name_of,
                   const at::Tensor& own, double relative, double floor);
  absl::Status CompareState();
  absl::Status Judge(int64_t step, double loss, const std::vector<const Compared*>& all) const;
  Tolerance ToleranceIn(DType dtype) const;

  const DeviceJob& spec_;
  const ParameterStore& parameters_;
  const ParameterOptimizer& optimizer_;
  bool rounds_more_ = false;  // Convolutions of an accelerator take float32 in TF32.
  std::optional<StepRecord> record_;
  std::vector<std::optional<Compared>> gradients_;  // By ParameterId.
  std::vector<Compared> state_, optimizer_state_;
  absl::Status failure_;  // Why a file could not be read.
};

}  // namespace stagewright
