#include "worker_daemon/engine/gradient_reduction.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <vector>

#include "worker_daemon/engine/tensor_types.h"
#include "worker_daemon/transport/all_reduce.h"

namespace stagewright {
namespace {

absl::StatusOr<Element> ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return Element::kFloat64;
    case DType::kFloat32:
      return Element::kFloat32;
    case DType::kFloat16:
      return Element::kFloat16;
    case DType::kBFloat16:
      return Element::kBFloat16;
    default:
      return absl::InvalidArgumentError("only floating-point gradients can be summed");
  }
}

// All gradients one after the other, then one flag per parameter: 1 if it has a gradient here.
// Their sum tells whether any device has one.
at::Tensor Flatten(const std::vector<at::Tensor>& parameters, at::Device device) {
  std::vector<at::Tensor> parts;
  std::vector<double> flags;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    flags.push_back(gradient.defined() ? 1 : 0);
    parts.push_back(gradient.defined()
                        ? gradient.reshape({-1}).to(device)
                        : at::zeros({parameter.numel()}, parameter.options().device(device)));
  }
  parts.push_back(at::tensor(flags, at::kDouble).to(device, parameters[0].scalar_type()));
  return at::cat(parts);
}

void Unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& parameters) {
  int64_t offset = 0;
  const auto count = static_cast<int64_t>(parameters.size());
  const at::Tensor flags = flat.narrow(0, flat.numel() - count, count).to(at::kCPU, at::kDouble);
  for (int64_t i = 0; i < count; ++i) {
    at::Tensor parameter = parameters[i];
    const at::Tensor part = flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    offset += parameter.numel();
    if (flags[i].item<double>() == 0) continue;
    if (parameter.grad().defined()) {
      parameter.mutable_grad().copy_(part);
    } else {
      parameter.mutable_grad() = part.to(parameter.device(), parameter.scalar_type(),
                                         /*non_blocking=*/false, /*copy=*/true);
    }
  }
}

// Gradients are summed in parts of about this many bytes, at least one parameter each: the copy
// that a part needs must not be larger than what the backward pass left free.
constexpr int64_t kPartBytes = 1 << 20;

std::vector<std::vector<at::Tensor>> Parts(const std::vector<at::Tensor>& parameters) {
  int64_t most = kPartBytes;
  for (const at::Tensor& parameter : parameters)
    most = std::max(most, static_cast<int64_t>(parameter.nbytes()));
  std::vector<std::vector<at::Tensor>> parts;
  int64_t bytes = 0;
  for (const at::Tensor& parameter : parameters) {
    const auto own = static_cast<int64_t>(parameter.nbytes());
    if (parts.empty() || bytes + own > most) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().push_back(parameter);
    bytes += own;
  }
  return parts;
}

}  // namespace

absl::Status ReduceGradients(const Graph& graph, const Reduction& reduction,
                             const ParameterStore& parameters, Transport& transport, Tag tag,
                             absl::Time deadline) {
  const at::NoGradGuard no_grad;
  std::map<DType, std::vector<at::Tensor>> groups;
  for (ParameterId id : reduction.parameters) {
    groups[graph.parameter(id).dtype].push_back(parameters[id]);
  }
  std::vector<int> devices;
  for (DeviceId device : reduction.devices) devices.push_back(device.value());
  Transport* const device_way = transport.ForDeviceMemory(devices);
  Transport& way = device_way != nullptr ? *device_way : transport;
  // One after the other, so that equal tags are matched in order.
  for (const auto& [dtype, group] : groups) {
    ASSIGN_OR_RETURN(const Element element, ElementOf(dtype));
    const at::Device where = device_way != nullptr ? group[0].device() : at::Device(at::kCPU);
    for (const std::vector<at::Tensor>& part : Parts(group)) {
      const at::Tensor flat = Flatten(part, where);
      RETURN_IF_ERROR(AllReduceSum(way, devices, tag, flat.data_ptr(),
                                   static_cast<size_t>(flat.numel()), element, deadline));
      Unflatten(flat, part);
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
