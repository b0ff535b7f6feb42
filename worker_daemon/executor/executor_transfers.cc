#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "worker_daemon/executor/executor.h"
#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

Direction DirectionOf(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kReceiveActivation
             ? Direction::kActivation
             : Direction::kGradient;
}

}  // namespace

void Executor::FindWays() {
  if (!ways_.empty() || transport_ == nullptr) return;
  ways_.resize(program_.channels.size());
  for (size_t c = 0; c < ways_.size(); ++c) {
    const Channel& channel = program_.channels[c];
    const DeviceId own = plan_.program->device;
    if (channel.local() || (channel.source != own && channel.target != own)) continue;
    Way& way = ways_[c];
    way.peer = channel.source == own ? channel.target.value() : channel.source.value();
    way.transport = transport_->ForDeviceMemory({way.peer});
    way.device_memory = way.transport != nullptr;
    if (way.device_memory) continue;
    way.transport = transport_;
    way.by_reference = transport_->ByReference(way.peer);
  }
}

void Executor::StartTransfer(RunAction action) {
  const MemoryMeter::Scope counted(options_.memory);  // Transfers start on any thread.
  const DeviceStreams::Scope on_compute(options_.streams);
  const absl::Status thrown = Guarded([&] {
    if (IsSend(ActionAt(action).kind)) {
      StartSend(action);
    } else {
      StartReceive(action);
    }
  });
  if (!thrown.ok()) End(action, thrown);
}

Tag Executor::TagOf(const Action& action) {
  Traffic traffic = Traffic::kReduction;
  if (IsTransfer(action.kind)) {
    traffic = DirectionOf(action.kind) == Direction::kActivation ? Traffic::kActivation
                                                                 : Traffic::kGradient;
  }
  // Actions of one lane start one at a time, so nothing else touches this count.
  const uint32_t sequence = sequences_[action.channel][static_cast<size_t>(traffic)]++;
  return {options_.first_channel + static_cast<uint32_t>(action.channel), traffic,
          sequence % (1u << 20)};
}

void Executor::StartSend(RunAction action) {
  const Action& send = ActionAt(action);
  const Direction direction = DirectionOf(send.kind);
  const RunAction producer = {action.section, PlanAt(action).producer};
  std::vector<at::Tensor> tensors;
  DeviceStreams::Mark made;
  {
    absl::MutexLock lock(&mutex_);
    const auto result = results_.find(producer);
    made = result->second.made;
    if (--result->second.sends_left == 0) {
      tensors = std::move(result->second.tensors);
      results_.erase(result);
    } else {
      tensors = result->second.tensors;
    }
  }
  auto pieces =
      PiecesOf(send.channel, direction, ActionAt(producer).samples, send.samples, tensors);
  if (!pieces.ok()) return End(action, pieces.status());
  const Way& way = ways_[send.channel];
  if (way.by_reference != nullptr) return SendTensors(action, *std::move(pieces), made);
  const MessageLayout layout(graph_, ValuesOf(send.channel, direction), send.samples.size());
  if (options_.streams != nullptr && !way.device_memory && layout.bytes() > 0)
    return SendStaged(action, layout, *std::move(pieces), made);
  const at::Tensor buffer =
      way.device_memory ? layout.PackOn(options_.device, *pieces) : layout.Pack(*pieces, *buffers_);
  const void* data = buffer.data_ptr();
  way.transport->Send(way.peer, TagOf(send), data, static_cast<size_t>(layout.bytes()),
                      // Keeps the buffer until it was sent.
                      [this, action, kept = buffer](absl::Status status) mutable {
                        kept = at::Tensor();
                        End(action, std::move(status));
                      });
}

// Packs and copies beside compute; the message leaves from the thread that learns that its copy has
// ended.
void Executor::SendStaged(RunAction action, const MessageLayout& layout,
                          std::vector<at::Tensor> tensors, const DeviceStreams::Mark& made) {
  const Tag tag = TagOf(ActionAt(action));
  const at::Tensor host = buffers_->Take(layout.bytes());
  const auto make = [layout, device = options_.device, kept = std::move(tensors)] {
    return layout.PackOn(device, kept).view(-1).view(at::kByte);
  };
  const auto send = [this, action, tag, host](absl::Status copied) {
    if (!copied.ok()) return End(action, std::move(copied));
    const Way& way = ways_[ActionAt(action).channel];
    way.transport->Send(way.peer, tag, host.data_ptr(), static_cast<size_t>(host.numel()),
                        [this, action, kept = host](absl::Status status) mutable {
                          kept = at::Tensor();
                          End(action, std::move(status));
                        });
  };
  options_.streams->CopyOut(made, make, host, send);
}

void Executor::SendTensors(RunAction action, std::vector<at::Tensor> tensors,
                           DeviceStreams::Mark made) {
  const Action& send = ActionAt(action);
  const std::vector<ValueRef>& values = ValuesOf(send.channel, DirectionOf(send.kind));
  auto message = std::make_shared<TensorMessage>();
  message->bytes = MessageLayout(graph_, values, send.samples.size()).bytes();
  if (!send.samples.empty()) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) continue;
      const at::ScalarType type = ToScalarType(graph_.meta(values[i]).dtype);
      if (tensors[i].scalar_type() == type) continue;
      tensors[i] = tensors[i].to(type);
      if (options_.streams != nullptr) made = options_.streams->Record();
    }
    message->tensors = std::move(tensors);
    message->made = std::move(made);
  }
  const Way& way = ways_[send.channel];
  way.by_reference->SendObject(
      way.peer, TagOf(send), std::move(message),
      [this, action](absl::Status status) { End(action, std::move(status)); });
}

void Executor::StartReceive(RunAction action) {
  const Action& receive = ActionAt(action);
  const Direction direction = DirectionOf(receive.kind);
  const Way& way = ways_[receive.channel];
  if (way.by_reference != nullptr) return ReceiveTensors(action);
  const MessageLayout layout(graph_, ValuesOf(receive.channel, direction), receive.samples.size());
  at::Tensor buffer = way.device_memory
                          ? at::empty({layout.bytes().count()},
                                      at::TensorOptions(at::kByte).device(options_.device))
                          : buffers_->Take(layout.bytes());
  way.transport->Receive(way.peer, TagOf(receive), buffer.data_ptr(),
                         static_cast<size_t>(layout.bytes()),
                         [this, action, layout, buffer](absl::Status status) mutable {
                           if (status.ok())
                             status = Guarded([&] { PutReceived(action, layout, buffer); });
                           // Whoever has the message holds it now, and may be done with it soon.
                           buffer = at::Tensor();
                           End(action, std::move(status));
                         });
}

void Executor::PutReceived(RunAction action, const MessageLayout& layout,
                           const at::Tensor& buffer) {
  const Action& receive = ActionAt(action);
  const DeviceStreams::Scope on_compute(options_.streams);
  TensorPiece piece{SamplesOf(action), {}};
  if (options_.streams == nullptr || ways_[receive.channel].device_memory || layout.bytes() == 0) {
    piece.tensors = layout.Unpack(buffer, options_.device);
  } else {
    DeviceStreams::Arrived arrived = options_.streams->CopyIn(buffer);
    piece.tensors = layout.Unpack(arrived.tensors[0], options_.device);
    piece.ready = std::move(arrived.ready);
  }
  mailbox_.Put(receive.channel, DirectionOf(receive.kind), std::move(piece));
}

void Executor::ReceiveTensors(RunAction action) {
  const Action& receive = ActionAt(action);
  const Direction direction = DirectionOf(receive.kind);
  const Way& way = ways_[receive.channel];
  const Tag tag = TagOf(receive);
  const Bytes bytes =
      MessageLayout(graph_, ValuesOf(receive.channel, direction), receive.samples.size()).bytes();
  const auto put = [this, action, direction, peer = way.peer, tag,
                    bytes](const TensorMessage& message) {
    if (message.bytes != bytes) {
      return SizeMismatch(peer, plan_.program->device.value(), tag,
                          static_cast<size_t>(message.bytes), static_cast<size_t>(bytes));
    }
    return Guarded([&] {
      TensorPiece piece{SamplesOf(action), message.tensors};
      if (options_.streams != nullptr) {
        DeviceStreams::Arrived arrived =
            options_.streams->Adopt(std::move(piece.tensors), message.made);
        piece.tensors = std::move(arrived.tensors);
        piece.ready = std::move(arrived.ready);
      } else {
        for (at::Tensor& tensor : piece.tensors) {
          if (tensor.defined()) tensor = tensor.to(options_.device);
        }
      }
      mailbox_.Put(ActionAt(action).channel, direction, std::move(piece));
    });
  };
  way.by_reference->ReceiveObject(
      way.peer, tag, [this, action, put](absl::StatusOr<ReferenceTransport::Object> object) {
        if (!object.ok()) return End(action, object.status());
        End(action, put(*static_cast<const TensorMessage*>(object->get())));
      });
}

}  // namespace stagewright
