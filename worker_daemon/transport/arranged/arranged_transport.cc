#include "worker_daemon/transport/arranged/arranged_transport.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/status.h"

namespace stagewright {
namespace {

constexpr Tag kControlTag{0, Traffic::kArrangement, 0};
// After a peer is lost, what it knew of is given this long to end: a peer that leaves does so when
// it is done with a transfer, perhaps before we have noticed that it ended or even started.
constexpr absl::Duration kDrain = absl::Milliseconds(200);
// While something is under way the thread looks for its end this often; right after, all the time.
constexpr absl::Duration kSpin = absl::Microseconds(100);
constexpr absl::Duration kLook = absl::Microseconds(50);

// Stands for a list of devices where the list itself would be too long (FNV-1a).
uint64_t Fingerprint(const std::vector<int>& devices) {
  uint64_t hash = 14695981039346656037u;
  for (const int device : devices) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (static_cast<uint32_t>(device) >> shift & 0xff)) * 1099511628211u;
    }
  }
  return hash;
}

}  // namespace

// On the wire as it is in memory: all machines of a job are little-endian.
struct ArrangedTransport::ControlMessage {
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

  static ControlMessage Of(const TransferOffer& offer) {
    ControlMessage message{.type = Type::kOffer, .kind = offer.kind, .id = offer.id};
    message.peer = offer.peer;
    message.channel = offer.tag.channel;
    message.traffic = static_cast<uint32_t>(offer.tag.traffic);
    message.sequence = offer.tag.sequence;
    message.bytes = offer.bytes;
    message.group = offer.group;
    message.members = offer.members;
    message.element = offer.element;
    message.SetNote(offer.note);
    return message;
  }
  static ControlMessage Of(const TransferOrder& order) {
    ControlMessage message{.type = Type::kOrder, .id = order.id};
    message.round = order.round;
    message.last_of_round = order.last_of_round;
    message.mismatch = order.mismatch;
    message.bytes = order.offered;
    message.expected = order.expected;
    message.SetNote(order.note);
    return message;
  }
  TransferOffer ToOffer(int device) const {
    return {kind,  device, id,      peer,    {channel, static_cast<Traffic>(traffic), sequence},
            bytes, group,  members, element, Note()};
  }
  TransferOrder ToOrder(int device) const {
    return {device, id, round, last_of_round != 0, mismatch != 0, bytes, expected, Note()};
  }
};

// One receive at a time from each peer. From peers that never say a word it tells of their loss.
struct ArrangedTransport::Listener {
  int peer = 0;
  ControlMessage message;
};

ArrangedTransport::ArrangedTransport(TransportIdentity identity, Transport* control,
                                     std::unique_ptr<DeviceMover> mover)
    : identity_(std::move(identity)),
      control_(control),
      mover_(std::move(mover)),
      thread_([this] { Loop(); }) {}

ArrangedTransport::~ArrangedTransport() {
  Abort(absl::CancelledError("the transport was closed"));
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](ArrangedTransport* self)
           ABSL_NO_THREAD_SAFETY_ANALYSIS { return self->listening_ == 0 && self->sending_ == 0; },
      this));
}

absl::Status ArrangedTransport::Connect(const std::vector<Peer>& peers, absl::Time deadline) {
  std::set<int> group = {identity_.device};
  for (const Peer& peer : peers) group.insert(peer.device);
  {
    absl::MutexLock lock(&mutex_);
    if (!group_.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", identity_.device, " is already connected"));
    }
    if (!failure_.ok()) return failure_;
    group_.assign(group.begin(), group.end());
  }
  for (const int device : group) {
    if (device == identity_.device) continue;
    listeners_[device] = std::make_unique<Listener>();
    listeners_[device]->peer = device;
  }
  {
    absl::MutexLock lock(&mutex_);
    listening_ = static_cast<int>(listeners_.size());
  }
  for (const auto& [device, listener] : listeners_) Listen(*listener);
  const absl::Status status = JoinGroup(deadline);
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  joined_ = status.ok();
  return status;
}

// The device with the lowest number makes the note by which the mover's devices find each other,
// and hands it out over the edges that the planner's addresses have just made. (A note in every
// address would leave a socket and a thread of NCCL waiting for each note that is not used.)
absl::Status ArrangedTransport::JoinGroup(absl::Time deadline) {
  std::vector<int> group;
  {
    absl::MutexLock lock(&mutex_);
    group = group_;
  }
  std::string note;
  if (group.front() == identity_.device) {
    ASSIGN_OR_RETURN(note, mover_->MakeNote());
    ControlMessage hello;
    hello.group = Fingerprint(group);
    hello.members = static_cast<uint32_t>(group.size());
    hello.SetNote(note);
    for (const int device : group) {
      if (device != identity_.device) SendControl(device, hello);
    }
  } else {
    absl::MutexLock lock(&mutex_);
    const auto ready = [](ArrangedTransport* self) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return self->hello_ || !self->failure_.ok();
    };
    if (!mutex_.AwaitWithDeadline(absl::Condition(+ready, this), deadline)) {
      return absl::DeadlineExceededError(
          absl::StrCat("device ", identity_.device, ": no word of the group of accelerators from ",
                       "device ", group.front()));
    }
    if (!failure_.ok()) return failure_;
    if (their_group_ != Fingerprint(group)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "device ", identity_.device, " was connected to devices ", absl::StrJoin(group, ", "),
          ", and device ", group.front(), " to others: all must be connected to all"));
    }
    note = note_;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    connecting_ = true;
  }
  const absl::Status status = mover_->Connect(identity_.device, group, note, deadline);
  absl::MutexLock lock(&mutex_);
  connecting_ = false;
  return status;
}

bool ArrangedTransport::connected_to(int device) const {
  absl::MutexLock lock(&mutex_);
  return joined_ &&
         (device == identity_.device || std::binary_search(group_.begin(), group_.end(), device));
}

void ArrangedTransport::Send(int peer, Tag tag, const void* data, size_t bytes, Done done) {
  MoverPart part{.kind = MoverPart::Kind::kSend, .peer = peer, .data = const_cast<void*>(data)};
  part.bytes = bytes;
  Post({std::move(part), tag, std::move(done)});
}

void ArrangedTransport::Receive(int peer, Tag tag, void* data, size_t bytes, Done done) {
  MoverPart part{.kind = MoverPart::Kind::kReceive, .peer = peer, .data = data, .bytes = bytes};
  Post({std::move(part), tag, std::move(done)});
}

void ArrangedTransport::AllReduce(const std::vector<int>& devices, Tag tag, void* data,
                                  size_t count, Element element, Done done) {
  MoverPart part{.kind = MoverPart::Kind::kReduce, .data = data};
  part.bytes = count * ElementSize(element);
  part.devices = devices;
  part.element = element;
  Post({std::move(part), tag, std::move(done)});
}

absl::Status ArrangedTransport::CheckReduction(const std::vector<int>& devices) const {
  std::set<int> distinct(devices.begin(), devices.end());
  if (distinct.size() != devices.size() || !distinct.contains(identity_.device)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "all-reduce: devices ", absl::StrJoin(devices, ", "), " on device ", identity_.device));
  }
  for (const int device : devices) {
    if (!std::binary_search(group_.begin(), group_.end(), device)) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", identity_.device, " is not connected to device ", device));
    }
  }
  return absl::OkStatus();
}

// The first of `devices` makes one note for them and says it with every offer, since the others may
// hear of its offers in another order than they were made.
absl::StatusOr<std::string> ArrangedTransport::GroupNote(const std::vector<int>& devices) {
  if (devices.front() != identity_.device) return std::string();
  std::string& note = group_notes_[devices];
  if (note.empty()) {
    ASSIGN_OR_RETURN(note, mover_->MakeNote());
  }
  return note;
}

void ArrangedTransport::Post(Operation operation) {
  const bool reduces = operation.part.kind == MoverPart::Kind::kReduce;
  if (operation.part.bytes > 0) operation.part.after = mover_->Mark();
  TransferOffer offer;
  int arranger = identity_.device;
  {
    absl::MutexLock lock(&mutex_);
    absl::Status status = failure_;
    if (status.ok() && operation.tag.channel > Tag::kMaxChannel) {
      status = absl::InvalidArgumentError(
          absl::StrCat("channel ", operation.tag.channel, " is above ", Tag::kMaxChannel));
    } else if (status.ok() && reduces) {
      status = CheckReduction(operation.part.devices);
    } else if (status.ok() &&
               (operation.part.peer == identity_.device ||
                !std::binary_search(group_.begin(), group_.end(), operation.part.peer))) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "device ", identity_.device, " is not connected to device ", operation.part.peer));
    }
    if (status.ok() && reduces) {
      absl::StatusOr<std::string> note = GroupNote(operation.part.devices);
      if (note.ok()) offer.note = *std::move(note);
      status = note.status();
    }
    if (!status.ok() || (reduces && operation.part.bytes == 0)) {
      refused_.push_back([done = std::move(operation.done), status] { done(status); });
      return;
    }
    offer.kind = static_cast<TransferOffer::Kind>(operation.part.kind);
    offer.device = identity_.device;
    offer.id = next_id_++;
    offer.peer = operation.part.peer;
    offer.tag = operation.tag;
    offer.bytes = operation.part.bytes;
    if (reduces) {
      offer.group = Fingerprint(operation.part.devices);
      offer.members = static_cast<uint32_t>(operation.part.devices.size());
      offer.element = static_cast<uint32_t>(operation.part.element);
    }
    operations_.emplace(offer.id, std::move(operation));
    arranger = group_.front();
    if (arranger == identity_.device) offers_.push_back(offer);
  }
  if (arranger != identity_.device) SendControl(arranger, ControlMessage::Of(offer));
}

void ArrangedTransport::Abort(absl::Status status) {
  if (status.ok()) status = absl::CancelledError("the transport was aborted");
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(aborted_, true)) return;
    failure_ = status;
    fail_at_ = absl::InfinitePast();
  }
  mover_->Interrupt();
  control_->Abort(std::move(status));
}

void ArrangedTransport::SendControl(int peer, const ControlMessage& message) {
  const bool is_order = message.type == ControlMessage::Type::kOrder;
  {
    absl::MutexLock lock(&mutex_);
    ++sending_;
    if (is_order) ++untold_[message.round];
  }
  const auto kept = std::make_shared<ControlMessage>(message);
  // A peer that cannot be told is lost, which its listener notices.
  control_->Send(peer, kControlTag, kept.get(), sizeof(ControlMessage),
                 [this, kept, is_order](absl::Status) {
                   absl::MutexLock lock(&mutex_);
                   if (is_order && --untold_[kept->round] == 0) untold_.erase(kept->round);
                   --sending_;  // Last: the destructor may be waiting for it.
                 });
}

void ArrangedTransport::Listen(Listener& listener) {
  control_->Receive(listener.peer, kControlTag, &listener.message, sizeof(ControlMessage),
                    [this, &listener](absl::Status status) { OnControl(listener, status); });
}

void ArrangedTransport::OnControl(Listener& listener, const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    const ControlMessage& message = listener.message;
    if (!status.ok()) {
      if (failure_.ok()) {
        failure_ = status;
        fail_at_ = absl::Now() + kDrain;
      }
      mover_->Interrupt();
      --listening_;  // Last: the destructor may be waiting for it.
      return;
    }
    if (message.type == ControlMessage::Type::kHello) {
      hello_ = true;
      their_group_ = message.group;
      note_ = message.Note();
    } else if (message.type == ControlMessage::Type::kOffer) {
      offers_.push_back(message.ToOffer(listener.peer));
    } else {
      orders_.push_back(message.ToOrder(identity_.device));
    }
  }
  Listen(listener);
}

void ArrangedTransport::Loop() {
  absl::Time spin_until = absl::InfinitePast();
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const auto never = [](ArrangedTransport*) { return false; };
      const bool draining = !failure_.ok() && !failed_;
      const absl::Condition has_work(this, &ArrangedTransport::HasWork);
      if (draining && absl::Now() < fail_at_) {
        mutex_.AwaitWithTimeout(absl::Condition(+never, this), kLook);
      } else if (in_flight_.empty()) {
        mutex_.Await(has_work);
      } else if (absl::Now() > spin_until) {
        mutex_.AwaitWithTimeout(has_work, kLook);
      }
      if (stopping_ && failed_ && refused_.empty()) return;
    }
    if (Work()) spin_until = absl::Now() + kSpin;
  }
}

// Whether anything happened.
bool ArrangedTransport::Work() {
  std::deque<TransferOffer> offers;
  std::deque<TransferOrder> orders;
  std::deque<std::function<void()>> refused;
  bool failed = false;
  bool fails = false;
  {
    absl::MutexLock lock(&mutex_);
    offers.swap(offers_);
    orders.swap(orders_);
    refused.swap(refused_);
    failed = failed_;
    fails = !failure_.ok() && !failed_ && (absl::Now() >= fail_at_ || operations_.empty());
  }
  for (const std::function<void()>& refusal : refused) refusal();
  if (failed) return true;
  if (fails) {
    FailAll();
    return true;
  }
  for (TransferOffer& offer : offers) arranger_.Add(std::move(offer));
  for (const TransferOrder& order : arranger_.Take()) {
    if (order.device == identity_.device) {
      absl::MutexLock lock(&mutex_);
      own_orders_.push_back(order);
    } else {
      SendControl(order.device, ControlMessage::Of(order));
    }
  }
  TakeOwnOrders(orders);
  for (const TransferOrder& order : orders) Follow(order);
  const absl::StatusOr<bool> ended = CollectEnded();
  if (!ended.ok()) Fail(ended.status());
  return !offers.empty() || !orders.empty() || !refused.empty() || !ended.ok() || *ended;
}

// Our part of a round begins after the others have been told of theirs: who is done with a send may
// leave, and must not take with it the word that the receiver waits for.
void ArrangedTransport::TakeOwnOrders(std::deque<TransferOrder>& orders) {
  absl::MutexLock lock(&mutex_);
  while (OwnOrderIsDue()) {
    orders.push_back(std::move(own_orders_.front()));
    own_orders_.pop_front();
  }
}

void ArrangedTransport::Follow(const TransferOrder& order) {
  absl::Status refusal;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = operations_.find(order.id);
    if (found == operations_.end()) return;
    const Operation& operation = found->second;
    MoverPart& part = found->second.part;
    part.note = order.note;
    if (order.mismatch && part.kind == MoverPart::Kind::kReduce) {
      refusal = absl::InvalidArgumentError(
          absl::StrCat(ToString(operation.tag), ": all-reduce of ", part.bytes, " bytes on device ",
                       identity_.device, ", of other bytes or elements on another (", order.offered,
                       ", ", order.expected, ")"));
    } else if (order.mismatch) {
      const bool sends = part.kind == MoverPart::Kind::kSend;
      refusal =
          SizeMismatch(sends ? identity_.device : part.peer, sends ? part.peer : identity_.device,
                       operation.tag, order.offered, order.expected);
    }
  }
  if (order.mismatch) return Finish(order.id, std::move(refusal));
  round_.push_back(order.id);
  if (order.last_of_round) StartRound();
}

void ArrangedTransport::StartRound() {
  std::vector<MoverPart> parts;
  std::vector<uint64_t> ids;
  std::vector<uint64_t> empty;
  {
    absl::MutexLock lock(&mutex_);
    for (const uint64_t id : std::exchange(round_, {})) {
      const MoverPart& part = operations_.at(id).part;
      if (part.bytes == 0) {
        empty.push_back(id);
      } else {
        parts.push_back(part);
        ids.push_back(id);
      }
    }
  }
  for (const uint64_t id : empty) Finish(id, absl::OkStatus());
  if (parts.empty()) return;
  absl::StatusOr<uint64_t> number = mover_->Start(parts);
  if (!number.ok()) return Fail(number.status());
  in_flight_[*number] = std::move(ids);
}

absl::StatusOr<bool> ArrangedTransport::CollectEnded() {
  if (in_flight_.empty()) return false;
  ASSIGN_OR_RETURN(const std::vector<uint64_t> ended, mover_->Ended());
  for (const uint64_t number : ended) {
    const auto round = in_flight_.find(number);
    const std::vector<uint64_t> ids = std::move(round->second);
    in_flight_.erase(round);
    for (const uint64_t id : ids) Finish(id, absl::OkStatus());
  }
  return !ended.empty();
}

void ArrangedTransport::Fail(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = std::move(status);
  fail_at_ = absl::InfinitePast();
}

void ArrangedTransport::FailAll() {
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](bool* connecting) { return !*connecting; }, &connecting_));
  }
  mover_->Stop();
  std::map<uint64_t, Operation> operations;
  absl::Status failure;
  {
    absl::MutexLock lock(&mutex_);
    operations.swap(operations_);
    failed_ = true;
    failure = failure_;
  }
  in_flight_.clear();
  round_.clear();
  for (const auto& [id, operation] : operations) operation.done(failure);
}

void ArrangedTransport::Finish(uint64_t id, absl::Status status) {
  Done done;
  {
    absl::MutexLock lock(&mutex_);
    const auto operation = operations_.find(id);
    done = std::move(operation->second.done);
    operations_.erase(operation);
  }
  done(std::move(status));
}

}  // namespace stagewright
