#include "worker_daemon/transport/arranged/control_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker_daemon/transport/arranged/device_mover.h"

namespace stagewright {
namespace {

constexpr Tag kControlTag{0, Traffic::kArrangement, 0};

}  // namespace

// FNV-1a.
uint64_t Fingerprint(const std::vector<int>& devices) {
  uint64_t hash = 14695981039346656037u;
  for (const int device : devices) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (static_cast<uint32_t>(device) >> shift & 0xff)) * 1099511628211u;
    }
  }
  return hash;
}

// On the wire as it is in memory: all machines of a job are little-endian.
struct ControlLink::Message {
  enum class Type : uint32_t { kHello, kOffer, kOrder };

  Type type = Type::kHello;
  TransferOffer::Kind kind = TransferOffer::Kind::kSend;
  uint64_t id = 0;
  int32_t peer = 0;
  uint32_t channel = 0;
  uint32_t traffic = 0;
  uint32_t sequence = 0;
  uint64_t bytes = 0;  // In an order: what is offered.
  uint64_t expected = 0;
  uint64_t group = 0;
  uint64_t round = 0;
  uint32_t members = 0;
  uint32_t element = 0;
  uint32_t last_of_round = 0;
  uint32_t mismatch = 0;
  uint32_t note_bytes = 0;
  char note[DeviceMover::kMaxNote] = {};

  void SetNote(const std::string& text) {
    note_bytes = static_cast<uint32_t>(std::min(text.size(), sizeof(note)));
    std::memcpy(note, text.data(), note_bytes);
  }
  std::string Note() const { return {note, std::min<size_t>(note_bytes, sizeof(note))}; }

  static Message Of(const GroupHello& hello) {
    Message message{.type = Type::kHello};
    message.group = hello.group;
    message.members = hello.members;
    message.SetNote(hello.note);
    return message;
  }
  static Message Of(const TransferOffer& offer) {
    Message message{.type = Type::kOffer, .kind = offer.kind, .id = offer.id};
    message.peer = offer.peer;
    message.channel = offer.tag.channel;
    message.traffic = static_cast<uint32_t>(offer.tag.traffic);
    message.sequence = offer.tag.sequence;
    message.bytes = offer.bytes;
    message.group = offer.group;
    message.members = offer.members;
    message.element = offer.element;
    return message;
  }
  static Message Of(const TransferOrder& order) {
    Message message{.type = Type::kOrder, .id = order.id};
    message.round = order.round;
    message.last_of_round = order.last_of_round;
    message.mismatch = order.mismatch;
    message.bytes = order.offered;
    message.expected = order.expected;
    return message;
  }
  GroupHello ToHello() const { return {group, members, Note()}; }
  TransferOffer ToOffer(int device) const {
    return {kind,  device, id,      peer,   {channel, static_cast<Traffic>(traffic), sequence},
            bytes, group,  members, element};
  }
  TransferOrder ToOrder(int device) const {
    return {device, id, round, last_of_round != 0, mismatch != 0, bytes, expected};
  }
};

// One receive at a time from each peer. From peers that never say a word it tells of their loss.
struct ControlLink::Listener {
  int peer = 0;
  Message message;
};

ControlLink::ControlLink(int device, Transport* control, Events events)
    : device_(device), control_(control), events_(std::move(events)) {}

ControlLink::~ControlLink() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* under_way) { return *under_way == 0; }, &under_way_));
}

void ControlLink::Listen(const std::vector<int>& peers) {
  for (const int peer : peers) {
    listeners_[peer] = std::make_unique<Listener>();
    listeners_[peer]->peer = peer;
  }
  {
    absl::MutexLock lock(&mutex_);
    under_way_ += static_cast<int>(listeners_.size());
  }
  for (const auto& [peer, listener] : listeners_) Receive(*listener);
}

void ControlLink::SayHello(int peer, const GroupHello& hello) {
  Send(peer, Message::Of(hello), [] {});
}

void ControlLink::Offer(int arranger, const TransferOffer& offer) {
  Send(arranger, Message::Of(offer), [] {});
}

void ControlLink::Order(const TransferOrder& order, std::function<void()> sent) {
  Send(order.device, Message::Of(order), std::move(sent));
}

void ControlLink::Send(int peer, const Message& message, std::function<void()> sent) {
  {
    absl::MutexLock lock(&mutex_);
    ++under_way_;
  }
  const auto kept = std::make_shared<Message>(message);
  control_->Send(peer, kControlTag, kept.get(), sizeof(Message),
                 [this, kept, sent = std::move(sent)](absl::Status) {
                   sent();
                   absl::MutexLock lock(&mutex_);
                   --under_way_;  // Last: the destructor may be waiting for it.
                 });
}

void ControlLink::Receive(Listener& listener) {
  control_->Receive(listener.peer, kControlTag, &listener.message, sizeof(Message),
                    [this, &listener](absl::Status status) { OnMessage(listener, status); });
}

void ControlLink::OnMessage(Listener& listener, const absl::Status& status) {
  if (!status.ok()) {
    events_.on_lost(status);
    absl::MutexLock lock(&mutex_);
    --under_way_;  // Last: the destructor may be waiting for it.
    return;
  }
  const Message& message = listener.message;
  if (message.type == Message::Type::kHello) {
    events_.on_hello(message.ToHello());
  } else if (message.type == Message::Type::kOffer) {
    events_.on_offer(message.ToOffer(listener.peer));
  } else {
    events_.on_order(message.ToOrder(device_));
  }
  Receive(listener);
}

}  // namespace stagewright
