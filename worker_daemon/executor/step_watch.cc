#include "worker_daemon/executor/step_watch.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_daemon/checkpoint/state_shares.h"
#include "worker_daemon/checkpoint/step_record.h"
#include "worker_daemon/executor/step_comparison.h"
#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

class StepRecorder : public StepWatch {
 public:
  StepRecorder(const DeviceJob& spec, const ParameterStore& parameters,
               const ParameterOptimizer& optimizer)
      : spec_(spec), parameters_(parameters), optimizer_(optimizer) {}

  absl::Status BeginStep(int64_t) override {
    items_.clear();
    return absl::OkStatus();
  }

  void OnGradient(ParameterId id, at::Tensor& gradient) override {
    const Parameter& parameter = spec_.graph->parameter(id);
    Add(OfShare(id, GradientName(parameter.name)), parameter.dtype, gradient);
  }

  absl::Status EndStep(int64_t step, double loss) override {
    RETURN_IF_ERROR(Guarded([&] { AddState(); }));
    std::vector<TensorView> views;
    for (const Item& item : items_) {
      const at::Tensor& tensor = item.tensor;
      views.push_back({item.name,
                       item.dtype,
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
    }
    const absl::Status status =
        WriteStepRecord(spec_.records.output_path, step, spec_.device, std::move(views), loss);
    items_.clear();
    return status;
  }

 private:
  struct Item {
    std::string name;
    DType dtype = DType::kFloat32;
    at::Tensor tensor;
  };

  void Add(std::string name, DType dtype, const at::Tensor& tensor) {
    const at::Tensor copy = tensor.detach().to(at::kCPU, ToScalarType(dtype),
                                               /*non_blocking=*/false, /*copy=*/true);
    items_.push_back({std::move(name), dtype, copy.contiguous()});
  }

  // The name of what is here of a tensor that is, or is not, shared out.
  std::string OfShare(ParameterId id, std::string name) const {
    const auto share = optimizer_.shares().find(id);
    if (share == optimizer_.shares().end()) return name;
    return ShareName({std::move(name), share->second.begin, share->second.end});
  }

  // Everything that is here, whoever else has it: copies on several devices must be equal.
  void AddState() {
    for (ParameterId id : parameters_.ids()) {
      const Parameter& parameter = spec_.graph->parameter(id);
      if (parameter.data.has_value()) continue;  // A constant.
      Add(ParameterName(parameter.name), parameter.dtype, parameters_[id]);
      for (const auto& [name, state] : optimizer_.StateOf(id)) {
        const std::string whole = StateName(absl::StrCat(parameter.name, ".", name));
        const bool step = name == "step";
        Add(step ? whole : OfShare(id, whole), step ? DType::kFloat32 : parameter.dtype, state);
      }
    }
  }

  const DeviceJob& spec_;
  const ParameterStore& parameters_;
  const ParameterOptimizer& optimizer_;
  std::vector<Item> items_;
};

}  // namespace

std::unique_ptr<StepWatch> MakeStepWatch(const DeviceJob& spec, const ParameterStore& parameters,
                                         const ParameterOptimizer& optimizer) {
  if (spec.records.compare) return std::make_unique<StepComparison>(spec, parameters, optimizer);
  return std::make_unique<StepRecorder>(spec, parameters, optimizer);
}

}  // namespace stagewright
