// What a job saw of one training step, for comparing two plans of it: OUTPUT/steps/step-0000000001/
// has device-00003.safetensors of every device, with the gradients that its optimizer took, and
// parameters, buffers and optimizer state after the step. No LibTorch here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/data/safetensors.h"
#include "common/data/sliced_tensors.h"

namespace stagewright {

// Names of tensors in a record. The state of an optimizer is named "<parameter>.<state>".
std::string GradientName(const std::string& parameter);
std::string ParameterName(const std::string& parameter);
std::string StateName(const std::string& state);

// Writes what `device` saw of the step; shares of the loss add up over devices. Errors of
// WriteSafetensors, or UNAVAILABLE naming the directory.
absl::Status WriteStepRecord(const std::string& output_path, int64_t step, DeviceId device,
                             std::vector<TensorView> tensors, double loss);

// What all devices saw of a step.
class StepRecord {
 public:
  // NOT_FOUND if there is none; errors of SafetensorsFile::Open. O(headers).
  static absl::StatusOr<StepRecord> Open(const std::string& output_path, int64_t step);

  double loss() const { return loss_; }

  // One device's copy of a tensor; devices that train the same parameter have equal ones.
  struct Copy {
    DeviceId device;
    const TensorView* tensor = nullptr;
  };
  // By device; empty if none has it. What devices have shares of is there once, all elements in a
  // row, as the first one's. Views live as long as the record.
  std::vector<Copy> Find(const std::string& name) const;
  // The slices of a tensor that the job had in parallel parts, in order, each as Find gives it;
  // empty if it had none. `name_of` makes a name in the record of a parameter's.
  std::vector<std::vector<Copy>> FindSlices(
      const std::string& parameter,
      const std::function<std::string(const std::string&)>& name_of) const;

 private:
  struct Share {
    DeviceId device;
    double loss = 0;
    SafetensorsFile file;
  };
  absl::Status JoinStateShares();

  std::vector<Share> shares_;  // By device.
  struct Joined {
    DeviceId device;
    OwnedTensor tensor;
    TensorView view;
  };
  std::map<std::string, Joined> joined_;  // What was in shares.
  double loss_ = 0;
};

}  // namespace stagewright
