#include "worker_daemon/update/gradient_reduction.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/memory/gradient_parts.h"
#include "common/memory/parameter_shares.h"
#include "worker_daemon/torch/tensor_types.h"
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
  const auto count = static_cast<int64_t>(parameters.size());
  const at::Tensor flags = at::ones({count}, parameters[0].options().device(device));
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor& parameter = parameters[i];
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) flags[i].zero_();
    parts.push_back(gradient.defined()
                        ? gradient.reshape({-1}).to(device)
                        : at::zeros({parameter.numel()}, parameter.options().device(device)));
  }
  parts.push_back(flags);
  return at::cat(parts);
}

// `readable` is the same as `flat`; only read if some parameter has no gradient here, because the
// flags are known then.
void Unflatten(const at::Tensor& flat, const at::Tensor& readable,
               const std::vector<at::Tensor>& parameters) {
  int64_t offset = 0;
  const auto count = static_cast<int64_t>(parameters.size());
  const bool complete =
      std::all_of(parameters.begin(), parameters.end(),
                  [](const at::Tensor& parameter) { return parameter.grad().defined(); });
  at::Tensor flags;
  if (!complete) flags = readable.narrow(0, flat.numel() - count, count).to(at::kCPU, at::kDouble);
  for (int64_t i = 0; i < count; ++i) {
    at::Tensor parameter = parameters[i];
    const at::Tensor part = flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    offset += parameter.numel();
    if (!complete && flags[i].item<double>() == 0) continue;
    if (parameter.grad().defined()) {
      parameter.mutable_grad().copy_(part);
    } else {
      parameter.mutable_grad() = part.to(parameter.device(), parameter.scalar_type(),
                                         /*non_blocking=*/false, /*copy=*/true);
    }
  }
}

// Copies what the device has queued into `flat` to the host, in memory that it copies to by itself.
absl::StatusOr<at::Tensor> Fetch(DeviceStreams& streams, at::Tensor flat) {
  const at::Tensor host =
      at::empty(flat.sizes(), flat.options().device(at::kCPU).pinned_memory(flat.is_cuda()));
  absl::Notification copied;
  absl::Status result;
  streams.CopyOut(
      streams.Record(), [kept = std::move(flat)] { return kept; }, host,
      [&](absl::Status status) {
        result = std::move(status);
        copied.Notify();
      });
  copied.WaitForNotification();
  RETURN_IF_ERROR(result);
  return host;
}

// Where and how the sums of some devices are made.
struct Way {
  Transport* transport = nullptr;
  DeviceStreams* streams = nullptr;  // Null: the transport takes the memory that gradients are in.
  std::vector<int> devices;
  int64_t place = 0;  // This device's in `devices`.
  Tag tag;
  absl::Time deadline;

  int64_t size() const { return std::ssize(devices); }
};

// Parameters whose gradients are summed together.
struct Part {
  std::vector<at::Tensor> parameters;
  // Parallel to them: to what the sums of shares are added. Empty: gradients stay where they are.
  std::vector<at::Tensor*> share_gradients;
};

absl::Status ReducePart(const Part& part, at::Device where, Element element, const Way& way) {
  const std::vector<at::Tensor>& parameters = part.parameters;
  at::Tensor flat = Flatten(parameters, where);
  at::Tensor summed = flat;
  if (way.streams != nullptr) {
    ASSIGN_OR_RETURN(summed, Fetch(*way.streams, std::exchange(flat, at::Tensor())));
  }
  RETURN_IF_ERROR(AllReduceSum(*way.transport, way.devices, way.tag, summed.data_ptr(),
                               static_cast<size_t>(summed.numel()), element, way.deadline));
  if (way.streams != nullptr) {
    DeviceStreams::Arrived arrived = way.streams->CopyIn(summed);
    way.streams->Await(arrived.ready);
    flat = std::move(arrived.tensors[0]);
  }
  Unflatten(flat, summed, parameters);
  return absl::OkStatus();
}

// Copies elements in a row to their shares, a row each, of which the last may stay partly as they
// were.
void ToShares(const at::Tensor& elements, const at::Tensor& rows) {
  const int64_t size = rows.size(1);
  const int64_t whole = size == 0 ? 0 : elements.numel() / size;
  const int64_t rest = elements.numel() - whole * size;
  rows.narrow(0, 0, whole).copy_(elements.narrow(0, 0, whole * size).view({whole, size}));
  if (rest > 0) rows[whole].narrow(0, 0, rest).copy_(elements.narrow(0, whole * size, rest));
}

// The inverse.
void FromShares(const at::Tensor& rows, const at::Tensor& elements) {
  const int64_t size = rows.size(1);
  const int64_t whole = size == 0 ? 0 : elements.numel() / size;
  const int64_t rest = elements.numel() - whole * size;
  elements.narrow(0, 0, whole * size).view({whole, size}).copy_(rows.narrow(0, 0, whole));
  if (rest > 0) elements.narrow(0, whole * size, rest).copy_(rows[whole].narrow(0, 0, rest));
}

// Where this device's begin of so many elements, and how many they are.
int64_t ShareBegin(int64_t elements, const Way& way) {
  return std::min(way.place * ShareSize(elements, way.size()), elements);
}
int64_t ShareElements(int64_t elements, const Way& way) {
  return std::min(ShareSize(elements, way.size()), elements - ShareBegin(elements, way));
}

// What this device has of elements in a row.
at::Tensor OwnShare(const at::Tensor& elements, const Way& way) {
  const int64_t count = elements.numel();
  return elements.narrow(0, ShareBegin(count, way), ShareElements(count, way));
}

// Elements of a part's shares, one after the other.
int64_t WidthOf(const std::vector<at::Tensor>& parameters, const Way& way) {
  int64_t width = 0;
  for (const at::Tensor& parameter : parameters) width += ShareSize(parameter.numel(), way.size());
  return width;
}

// Puts the sum of the device's share of a parameter's gradient where it belongs.
void TakeShare(const at::Tensor& sum, const Part& part, size_t place, const Way& way) {
  if (!part.share_gradients.empty()) {
    at::Tensor& all = *part.share_gradients[place];
    if (all.defined()) {
      all.add_(sum);
    } else {
      all = sum.clone();
    }
    return;
  }
  at::Tensor& gradient = part.parameters[place].mutable_grad();
  if (!gradient.is_contiguous()) gradient = gradient.contiguous();
  OwnShare(gradient.view({-1}), way).copy_(sum);
}

// A row for every device, with its share of each parameter's gradient one after the other.
absl::Status ScatterPart(const Part& part, at::Device where, Element element, const Way& way) {
  const std::vector<at::Tensor>& parameters = part.parameters;
  const int64_t width = WidthOf(parameters, way);
  at::Tensor rows = at::zeros({way.size(), width}, parameters[0].options().device(where));
  std::vector<bool> has_gradient;
  int64_t offset = 0;
  for (const at::Tensor& parameter : parameters) {
    const int64_t size = ShareSize(parameter.numel(), way.size());
    has_gradient.push_back(parameter.grad().defined());
    if (parameter.grad().defined())
      ToShares(parameter.grad().reshape({-1}), rows.narrow(1, offset, size));
    if (!part.share_gradients.empty()) parameter.mutable_grad() = at::Tensor();
    offset += size;
  }
  if (way.streams != nullptr) {
    ASSIGN_OR_RETURN(rows, Fetch(*way.streams, std::exchange(rows, at::Tensor())));
  }
  RETURN_IF_ERROR(ReduceScatterSum(*way.transport, way.devices, way.tag, rows.data_ptr(),
                                   static_cast<size_t>(rows.numel()), element, way.deadline));
  at::Tensor own = rows[way.place];
  if (way.streams != nullptr) {
    DeviceStreams::Arrived arrived = way.streams->CopyIn(own);
    way.streams->Await(arrived.ready);
    own = std::move(arrived.tensors[0]);
  }
  offset = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t elements = parameters[i].numel();
    if (has_gradient[i])
      TakeShare(own.narrow(0, offset, ShareElements(elements, way)), part, i, way);
    offset += ShareSize(elements, way.size());
  }
  return absl::OkStatus();
}

absl::Status GatherPart(const Part& part, at::Device where, Element element, const Way& way) {
  const std::vector<at::Tensor>& parameters = part.parameters;
  const int64_t width = WidthOf(parameters, way);
  at::Tensor rows = at::zeros({way.size(), width}, parameters[0].options().device(where));
  int64_t offset = 0;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor share = OwnShare(parameter.detach().view({-1}), way);
    rows[way.place].narrow(0, offset, share.numel()).copy_(share);
    offset += ShareSize(parameter.numel(), way.size());
  }
  if (way.streams != nullptr) {
    ASSIGN_OR_RETURN(rows, Fetch(*way.streams, std::exchange(rows, at::Tensor())));
  }
  RETURN_IF_ERROR(AllGather(*way.transport, way.devices, way.tag, rows.data_ptr(),
                            static_cast<size_t>(rows.numel()), element, way.deadline));
  if (way.streams != nullptr) {
    DeviceStreams::Arrived arrived = way.streams->CopyIn(rows);
    way.streams->Await(arrived.ready);
    rows = std::move(arrived.tensors[0]);
  }
  offset = 0;
  for (const at::Tensor& parameter : parameters) {
    const int64_t size = ShareSize(parameter.numel(), way.size());
    FromShares(rows.narrow(1, offset, size), parameter.detach().view({-1}));
    offset += size;
  }
  return absl::OkStatus();
}

using PartFunction = absl::Status (*)(const Part& part, at::Device where, Element element,
                                      const Way& way);

// Calls the function for the parts of the reduction's parameters, one after the other, so that
// equal tags are matched in order.
absl::Status ForParts(PartFunction function, const Graph& graph, const Reduction& reduction,
                      const ParameterStore& parameters, Transport& transport, Tag tag,
                      absl::Time deadline, DeviceStreams* streams) {
  const at::NoGradGuard no_grad;
  Way way{.tag = tag, .deadline = deadline};
  for (DeviceId device : reduction.devices) {
    if (device.value() == transport.device()) way.place = std::ssize(way.devices);
    way.devices.push_back(device.value());
  }
  way.transport = transport.ForDeviceMemory(way.devices);
  const bool in_place = way.transport != nullptr;
  if (!in_place) {
    way.transport = &transport;
    way.streams = streams;
  }
  for (const std::vector<ParameterId>& ids : GradientParts(graph, reduction.parameters)) {
    ASSIGN_OR_RETURN(const Element element, ElementOf(graph.parameter(ids[0]).dtype));
    Part part;
    for (ParameterId id : ids) {
      part.parameters.push_back(parameters[id]);
      if (reduction.each_pass) part.share_gradients.push_back(&parameters.share_gradient(id));
    }
    const bool on_device = in_place || streams != nullptr;
    const at::Device where = on_device ? part.parameters[0].device() : at::Device(at::kCPU);
    RETURN_IF_ERROR(function(part, where, element, way));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReduceGradients(const Graph& graph, const Reduction& reduction,
                             const ParameterStore& parameters, Transport& transport, Tag tag,
                             absl::Time deadline, DeviceStreams* streams) {
  return ForParts(ReducePart, graph, reduction, parameters, transport, tag, deadline, streams);
}

absl::Status ScatterGradients(const Graph& graph, const Reduction& reduction,
                              const ParameterStore& parameters, Transport& transport, Tag tag,
                              absl::Time deadline, DeviceStreams* streams) {
  return ForParts(ScatterPart, graph, reduction, parameters, transport, tag, deadline, streams);
}

absl::Status GatherParameters(const Graph& graph, const Reduction& reduction,
                              const ParameterStore& parameters, Transport& transport, Tag tag,
                              absl::Time deadline, DeviceStreams* streams) {
  return ForParts(GatherPart, graph, reduction, parameters, transport, tag, deadline, streams);
}

}  // namespace stagewright
