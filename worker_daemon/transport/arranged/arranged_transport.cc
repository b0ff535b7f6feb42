#include "worker_daemon/transport/arranged/arranged_transport.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/status.h"

namespace stagewright {
namespace {

// After a peer is lost, what it knew of is given this long to end: a peer that leaves does so when
// it is done with a transfer, perhaps before we have noticed that it ended or even started.
constexpr absl::Duration kDrain = absl::Milliseconds(200);
// While something is under way the thread looks for its end this often; right after, all the time.
constexpr absl::Duration kSpin = absl::Microseconds(100);
constexpr absl::Duration kLook = absl::Microseconds(50);

}  // namespace

ArrangedTransport::ArrangedTransport(TransportIdentity identity, Transport* control,
                                     std::unique_ptr<DeviceMover> mover)
    : identity_(std::move(identity)), control_(control), mover_(std::move(mover)) {
  link_ = std::make_unique<ControlLink>(
      identity_.device, control,
      ControlLink::Events{.on_hello =
                              [this](const GroupHello& hello) {
                                absl::MutexLock lock(&mutex_);
                                hello_ = hello;
                              },
                          .on_offer =
                              [this](TransferOffer offer) {
                                absl::MutexLock lock(&mutex_);
                                offers_.push_back(std::move(offer));
                              },
                          .on_order =
                              [this](TransferOrder order) {
                                absl::MutexLock lock(&mutex_);
                                orders_.push_back(std::move(order));
                              },
                          .on_lost = [this](const absl::Status& status) { Drain(status); }});
  thread_ = std::thread([this] { Loop(); });
}

ArrangedTransport::~ArrangedTransport() {
  Abort(absl::CancelledError("the transport was closed"));
  {
    absl::MutexLock lock(&mutex_);
    const auto failed = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return state_ == State::kFailed;
    };
    mutex_.Await(absl::Condition(&failed));
    state_ = State::kStopped;
  }
  thread_.join();
  link_.reset();
}

absl::Status ArrangedTransport::Connect(const std::vector<Peer>& peers, absl::Time deadline) {
  std::set<int> others;
  for (const Peer& peer : peers) others.insert(peer.device);
  others.erase(identity_.device);
  std::vector<int> group(others.begin(), others.end());
  group.insert(std::lower_bound(group.begin(), group.end(), identity_.device), identity_.device);
  {
    absl::MutexLock lock(&mutex_);
    if (state_ == State::kJoining || state_ == State::kJoined || !group_.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", identity_.device, " is already connected"));
    }
    if (!failure_.ok()) return failure_;
    state_ = State::kJoining;
    group_ = group;
  }
  link_->Listen({others.begin(), others.end()});
  absl::Status status = JoinGroup(group, deadline);
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) status = failure_;
  if (status.ok()) {
    state_ = State::kJoined;
  } else {
    group_.clear();
  }
  return status;
}

// The device with the lowest number makes the note by which the mover's devices find each other,
// and hands it out over the edges that the planner's addresses have just made. (A note in every
// address would leave a socket and a thread of NCCL waiting for each note that is not used.)
absl::Status ArrangedTransport::JoinGroup(const std::vector<int>& group, absl::Time deadline) {
  std::string note;
  if (group.front() == identity_.device) {
    ASSIGN_OR_RETURN(note, mover_->MakeNote());
    const GroupHello hello = {Fingerprint(group), static_cast<uint32_t>(group.size()), note};
    for (const int device : group) {
      if (device != identity_.device) link_->SayHello(device, hello);
    }
  } else {
    ASSIGN_OR_RETURN(note, AwaitHello(group, deadline));
  }
  absl::MutexLock connecting(&connecting_);
  {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
  }
  return mover_->Connect(identity_.device, group, note, deadline);
}

absl::StatusOr<std::string> ArrangedTransport::AwaitHello(const std::vector<int>& group,
                                                          absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return hello_.has_value() || !failure_.ok();
  };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&ready), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat("device ", identity_.device,
                                                    ": no word of the group of accelerators from ",
                                                    "device ", group.front()));
  }
  if (!failure_.ok()) return failure_;
  if (hello_->group != Fingerprint(group)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device ", identity_.device, " was connected to devices ", absl::StrJoin(group, ", "),
        ", and device ", group.front(), " to others: all must be connected to all"));
  }
  return hello_->note;
}

bool ArrangedTransport::connected_to(int device) const {
  absl::MutexLock lock(&mutex_);
  return state_ != State::kNew && state_ != State::kJoining &&
         std::binary_search(group_.begin(), group_.end(), device);
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
  if (arranger != identity_.device) link_->Offer(arranger, offer);
}

void ArrangedTransport::Abort(absl::Status status) {
  if (status.ok()) status = absl::CancelledError("the transport was aborted");
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(aborted_, true)) return;
    failure_ = status;
    if (state_ != State::kFailed) state_ = State::kFailing;
  }
  mover_->Interrupt();
  control_->Abort(std::move(status));
}

void ArrangedTransport::Drain(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (failure_.ok()) {
    failure_ = status;
    state_ = State::kDraining;
    drained_at_ = absl::Now() + kDrain;
  }
  mover_->Interrupt();
}

void ArrangedTransport::Loop() {
  absl::Time spin_until = absl::InfinitePast();
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const auto never = [](ArrangedTransport*) { return false; };
      const absl::Condition has_work(this, &ArrangedTransport::HasWork);
      if (state_ == State::kDraining && absl::Now() < drained_at_) {
        mutex_.AwaitWithTimeout(absl::Condition(+never, this), kLook);
      } else if (in_flight_.empty()) {
        mutex_.Await(has_work);
      } else if (absl::Now() > spin_until) {
        mutex_.AwaitWithTimeout(has_work, kLook);
      }
      if (state_ == State::kStopped && refused_.empty()) return;
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
    failed = state_ == State::kFailed || state_ == State::kStopped;
    fails = state_ == State::kFailing ||
            (state_ == State::kDraining && (absl::Now() >= drained_at_ || operations_.empty()));
  }
  for (const std::function<void()>& refusal : refused) refusal();
  if (failed) return true;
  if (fails) {
    FailAll();
    return true;
  }
  for (TransferOffer& offer : offers) arranger_.Add(std::move(offer));
  for (const TransferOrder& order : arranger_.Take()) {
    absl::ReleasableMutexLock lock(&mutex_);
    if (order.device == identity_.device) {
      own_orders_.push_back(order);
      continue;
    }
    ++untold_[order.round];
    lock.Release();
    link_->Order(order, [this, round = order.round] {
      absl::MutexLock told(&mutex_);
      if (--untold_[round] == 0) untold_.erase(round);
    });
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
  state_ = State::kFailing;
}

void ArrangedTransport::FailAll() {
  {
    absl::MutexLock connecting(&connecting_);
    mover_->Stop();
  }
  std::map<uint64_t, Operation> operations;
  absl::Status failure;
  {
    absl::MutexLock lock(&mutex_);
    operations.swap(operations_);
    state_ = State::kFailed;
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
