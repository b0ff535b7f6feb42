#include "worker_daemon/effects/sends.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <utility>

#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/transport/reference_transport.h"

namespace stagewright {

void Sends::Keep(const StepAction& pass, PassResult result) {
  const size_t sends = pass.plan->sends.size();
  if (sends == 0) return;
  DeviceStreams::Mark made;
  if (streams_ != nullptr) made = streams_->Record();
  absl::MutexLock lock(&mutex_);
  results_[pass.place] = {std::move(result), sends, std::move(made)};
}

void Sends::Clear() {
  absl::MutexLock lock(&mutex_);
  results_.clear();
}

Sends::Kept Sends::ResultFor(const StepAction& send) {
  absl::MutexLock lock(&mutex_);
  const auto kept = results_.find({send.place.section, send.plan->producer});
  if (--kept->second.sends_left > 0) return kept->second;
  return std::move(results_.extract(kept).mapped());
}

void Sends::Start(const StepAction& send) {
  const Action& action = send.action();
  auto [result, sends_left, made] = ResultFor(send);
  auto pieces = CutForChannel(result, graph_, program_, action.channel, DirectionOf(action.kind),
                              send.samples.range);
  if (!pieces.ok()) return end_(send, pieces.status());
  const Route& route = routes_.RouteOf(action);
  if (route.by_reference != nullptr) return SendTensors(send, *std::move(pieces), std::move(made));
  const MessageLayout layout = routes_.LayoutOf(action);
  if (streams_ != nullptr && layout.bytes() > 0) {
    return route.device_memory ? SendFromDevice(send, layout, *std::move(pieces), made)
                               : SendStaged(send, layout, *std::move(pieces), made);
  }
  const at::Tensor buffer =
      route.device_memory ? layout.PackOn(device_, *pieces) : layout.Pack(*pieces, buffers_);
  SendBuffer(send, routes_.NextTag(action), buffer, layout.bytes());
}

// Keeps the buffer until it was sent.
void Sends::SendBuffer(const StepAction& send, Tag tag, const at::Tensor& buffer, Bytes bytes) {
  const Route& route = routes_.RouteOf(send.action());
  route.transport->Send(route.peer, tag, buffer.data_ptr(), static_cast<size_t>(bytes),
                        [this, send, kept = buffer](absl::Status status) mutable {
                          kept = at::Tensor();
                          end_(send, std::move(status));
                        });
}

// Packs beside compute: the message waits for the pass that made it, not for those queued since.
void Sends::SendFromDevice(const StepAction& send, const MessageLayout& layout,
                           std::vector<at::Tensor> tensors, const DeviceStreams::Mark& made) {
  const Route& route = routes_.RouteOf(send.action());
  const Tag tag = routes_.NextTag(send.action());
  streams_->QueueOut(made, [&] {
    at::Tensor buffer = layout.PackOn(device_, tensors);
    void* const data = buffer.data_ptr();
    const auto end = [this, send, kept = std::move(tensors),
                      packed = std::move(buffer)](absl::Status status) mutable {
      kept.clear();
      packed = at::Tensor();
      end_(send, std::move(status));
    };
    route.transport->Send(route.peer, tag, data, static_cast<size_t>(layout.bytes()), end);
  });
}

// Packs and copies beside compute; the message leaves from the thread that learns that its copy has
// ended.
void Sends::SendStaged(const StepAction& send, const MessageLayout& layout,
                       std::vector<at::Tensor> tensors, const DeviceStreams::Mark& made) {
  const Tag tag = routes_.NextTag(send.action());
  const at::Tensor host = buffers_.Take(layout.bytes());
  const auto make = [layout, device = device_, kept = std::move(tensors)] {
    return layout.PackOn(device, kept).view(-1).view(at::kByte);
  };
  const auto leave = [this, send, tag, host](absl::Status copied) {
    if (!copied.ok()) return end_(send, std::move(copied));
    SendBuffer(send, tag, host, Bytes(host.numel()));
  };
  streams_->CopyOut(made, make, host, leave);
}

void Sends::SendTensors(const StepAction& send, std::vector<at::Tensor> tensors,
                        DeviceStreams::Mark made) {
  const Action& action = send.action();
  auto message = std::make_shared<TensorMessage>();
  message->bytes = routes_.LayoutOf(action).bytes();
  if (!action.samples.empty()) {
    const std::vector<ValueRef>& values = routes_.ValuesOf(action);
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) continue;
      const at::ScalarType type = ToScalarType(routes_.TypeOf(values[i]));
      if (tensors[i].scalar_type() == type) continue;
      tensors[i] = tensors[i].to(type);
      if (streams_ != nullptr) made = streams_->Record();
    }
    message->tensors = std::move(tensors);
    message->made = std::move(made);
  }
  const Route& route = routes_.RouteOf(action);
  route.by_reference->SendObject(
      route.peer, routes_.NextTag(action), std::move(message),
      [this, send](absl::Status status) { end_(send, std::move(status)); });
}

}  // namespace stagewright
