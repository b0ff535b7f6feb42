#include "worker_daemon/effects/receives.h"

#include <ATen/ATen.h>

#include <utility>

#include "worker_daemon/torch/torch_guard.h"
#include "worker_daemon/transport/reference_transport.h"

namespace stagewright {

void Receives::Start(const StepAction& receive) {
  const Action& action = receive.action();
  const Route& route = routes_.RouteOf(action);
  if (route.by_reference != nullptr) return ReceiveTensors(receive);
  const MessageLayout layout = routes_.LayoutOf(action);
  const auto start = [&](at::Tensor buffer) { StartInto(receive, layout, std::move(buffer)); };
  if (route.device_memory && streams_ != nullptr) return streams_->QueueIn(layout.bytes(), start);
  start(route.device_memory
            ? at::empty({layout.bytes().count()}, at::TensorOptions(at::kByte).device(device_))
            : buffers_.Take(layout.bytes()));
}

void Receives::StartInto(const StepAction& receive, const MessageLayout& layout,
                         at::Tensor buffer) {
  const Action& action = receive.action();
  const Route& route = routes_.RouteOf(action);
  void* const data = buffer.data_ptr();
  route.transport->Receive(
      route.peer, routes_.NextTag(action), data, static_cast<size_t>(layout.bytes()),
      [this, receive, layout, buffer = std::move(buffer)](absl::Status status) mutable {
        if (status.ok()) status = Guarded([&] { Unpack(receive, layout, buffer); });
        // Whoever has the message holds it now, and may be done with it soon.
        buffer = at::Tensor();
        end_(receive, std::move(status));
      });
}

void Receives::Unpack(const StepAction& receive, const MessageLayout& layout,
                      const at::Tensor& buffer) {
  const Action& action = receive.action();
  const DeviceStreams::Scope on_compute(streams_);
  TensorPiece piece{receive.samples, {}};
  if (streams_ == nullptr || routes_.RouteOf(action).device_memory || layout.bytes() == 0) {
    piece.tensors = layout.Unpack(buffer, device_);
  } else {
    DeviceStreams::Arrived arrived = streams_->CopyIn(buffer);
    piece.tensors = layout.Unpack(arrived.tensors[0], device_);
    piece.ready = std::move(arrived.ready);
  }
  mailbox_.Put(action.channel, DirectionOf(action.kind), std::move(piece));
}

void Receives::ReceiveTensors(const StepAction& receive) {
  const Action& action = receive.action();
  const Route& route = routes_.RouteOf(action);
  const Tag tag = routes_.NextTag(action);
  const Bytes bytes = routes_.LayoutOf(action).bytes();
  const auto put = [this, receive, peer = route.peer, tag, bytes](const TensorMessage& message) {
    if (message.bytes != bytes) {
      return SizeMismatch(peer, routes_.device().value(), tag, static_cast<size_t>(message.bytes),
                          static_cast<size_t>(bytes));
    }
    return Guarded([&] { Adopt(receive, message); });
  };
  route.by_reference->ReceiveObject(
      route.peer, tag, [this, receive, put](absl::StatusOr<ReferenceTransport::Object> object) {
        if (!object.ok()) return end_(receive, object.status());
        end_(receive, put(*static_cast<const TensorMessage*>(object->get())));
      });
}

void Receives::Adopt(const StepAction& receive, const TensorMessage& message) {
  TensorPiece piece{receive.samples, message.tensors};
  if (streams_ != nullptr) {
    DeviceStreams::Arrived arrived = streams_->Adopt(std::move(piece.tensors), message.made);
    piece.tensors = std::move(arrived.tensors);
    piece.ready = std::move(arrived.ready);
  } else {
    for (at::Tensor& tensor : piece.tensors) {
      if (tensor.defined()) tensor = tensor.to(device_);
    }
  }
  mailbox_.Put(receive.action().channel, DirectionOf(receive.action().kind), std::move(piece));
}

}  // namespace stagewright
