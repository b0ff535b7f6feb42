#include "worker_daemon/transport/arranged/arranged_transport.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/clock/steady_now.h"
#include "common/clock/steady_wait.h"
#include "worker_daemon/transport/short_turns.h"

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
    : identity_(std::move(identity)),
      control_(control),
      mover_(std::move(mover)),
      arranger_(identity_.device),
      rounds_(mover_.get()) {
  link_ = std::make_unique<ControlLink>(
      identity_.device, control,
      ControlLink::Events{.on_hello =
                              [this](const GroupHello& hello) {
                                absl::MutexLock lock(&mutex_);
                                group_.hello = hello;
                              },
                          .on_offer =
                              [this](const TransferOffer& offer) {
                                absl::MutexLock lock(&mutex_);
                                arranger_.Add(offer);
                              },
                          .on_order =
                              [this](const TransferOrder& order) {
                                absl::MutexLock lock(&mutex_);
                                orders_.push_back(order);
                              },
                          .on_lost = [this](const absl::Status& status) { Drain(status); }});
  thread_ = std::thread([this] { Loop(); });
}

ArrangedTransport::~ArrangedTransport() {
  Abort(absl::CancelledError("the transport was closed"));
  {
    absl::MutexLock lock(&mutex_);
    const auto aborted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return life_.aborted(); };
    mutex_.Await(absl::Condition(&aborted));
    life_.Stop();
  }
  thread_.join();
  link_.reset();
}

absl::Status ArrangedTransport::Connect(const std::vector<Peer>& peers, absl::Time deadline) {
  std::set<int> others, partners;
  for (const Peer& peer : peers) {
    if (peer.device == identity_.device) continue;
    others.insert(peer.device);
    if (peer.talks) partners.insert(peer.device);
  }
  std::vector<int> devices(others.begin(), others.end());
  devices.insert(std::lower_bound(devices.begin(), devices.end(), identity_.device),
                 identity_.device);
  {
    absl::MutexLock lock(&mutex_);
    if (life_.joining_or_joined() || !group_.devices.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", identity_.device, " is already connected"));
    }
    if (!life_.failure().ok()) return life_.failure();
    life_.Join();
    group_.devices = devices;
  }
  link_->Listen({others.begin(), others.end()});
  absl::Status status =
      JoinGroup({identity_.device, devices, {partners.begin(), partners.end()}}, deadline);
  absl::MutexLock lock(&mutex_);
  if (!life_.failure().ok()) status = life_.failure();
  if (status.ok()) {
    life_.SetJoined();
  } else {
    group_.devices.clear();
  }
  return status;
}

// The device with the lowest number makes the note by which the mover's devices find each other,
// and hands it out over the edges that the planner's addresses have just made. (A note in every
// address would leave a socket and a thread of NCCL waiting for each note that is not used.)
absl::Status ArrangedTransport::JoinGroup(const MoverGroup& group, absl::Time deadline) {
  const std::vector<int>& devices = group.devices;
  std::string note;
  if (devices.front() == identity_.device) {
    ASSIGN_OR_RETURN(note, mover_->MakeNote());
    const GroupHello hello = {Fingerprint(devices), static_cast<uint32_t>(devices.size()), note};
    for (const int device : devices) {
      if (device != identity_.device) link_->SayHello(device, hello);
    }
  } else {
    ASSIGN_OR_RETURN(note, AwaitHello(devices, deadline));
  }
  absl::MutexLock connecting(&connecting_);
  {
    absl::MutexLock lock(&mutex_);
    if (!life_.failure().ok()) return life_.failure();
  }
  return mover_->Connect(group, note, deadline);
}

absl::StatusOr<std::string> ArrangedTransport::AwaitHello(const std::vector<int>& devices,
                                                          absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return group_.hello.has_value() || !life_.failure().ok();
  };
  if (!AwaitUntil(mutex_, absl::Condition(&ready), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat("device ", identity_.device,
                                                    ": no word of the group of accelerators from ",
                                                    "device ", devices.front()));
  }
  if (!life_.failure().ok()) return life_.failure();
  if (group_.hello->group != Fingerprint(devices)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device ", identity_.device, " was connected to devices ", absl::StrJoin(devices, ", "),
        ", and device ", devices.front(), " to others: all must be connected to all"));
  }
  return group_.hello->note;
}

bool ArrangedTransport::connected_to(int device) const {
  absl::MutexLock lock(&mutex_);
  return life_.past_joining() &&
         std::binary_search(group_.devices.begin(), group_.devices.end(), device);
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

void ArrangedTransport::RunCollective(Collective collective, const std::vector<int>& devices,
                                      Tag tag, void* data, size_t count, Element element,
                                      Done done) {
  MoverPart part{.kind = MoverPart::Kind::kReduce, .data = data};
  part.bytes = count * ElementSize(element);
  part.devices = devices;
  part.collective = collective;
  part.element = element;
  Post({std::move(part), tag, std::move(done)});
}

absl::Status ArrangedTransport::OpenCollectives(const std::vector<std::vector<int>>& lists,
                                                absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    if (!life_.failure().ok()) return life_.failure();
    if (!life_.past_joining()) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", identity_.device, " is not connected"));
    }
  }
  absl::Status status;
  {
    absl::MutexLock connecting(&connecting_);
    {
      absl::MutexLock lock(&mutex_);
      if (!life_.failure().ok()) return life_.failure();
    }
    status = mover_->OpenCollectives(lists, deadline);
  }
  absl::MutexLock lock(&mutex_);
  if (!life_.failure().ok()) return life_.failure();
  if (status.ok()) group_.lists.insert(lists.begin(), lists.end());
  return status;
}

void ArrangedTransport::Post(ArrangedOperation operation) {
  const bool reduces = operation.part.kind == MoverPart::Kind::kReduce;
  const bool gives = operation.part.kind != MoverPart::Kind::kReceive && operation.part.bytes > 0;
  const std::shared_ptr<void> after = operation.part.bytes > 0 ? mover_->Mark() : nullptr;
  operation.part.after = after;
  const bool passed = !gives || mover_->Passed(after);
  absl::MutexLock lock(&mutex_);
  absl::Status status = life_.failure();
  if (status.ok())
    status = CheckOperation(operation, identity_.device, group_.devices, group_.lists);
  if (!status.ok() || (reduces && operation.part.bytes == 0)) {
    return operations_.Refuse(std::move(operation.done), std::move(status));
  }
  const uint64_t id = operations_.Add(std::move(operation));
  TransferOffer offer = OfferOf(*operations_.Find(id), identity_.device, id);
  // Behind what is held already: among equal tags the order of posting counts.
  const bool receives = operations_.Find(id)->part.kind == MoverPart::Kind::kReceive;
  if (!passed || (!receives && !held_.empty())) {
    held_.push_back(offer);
  } else {
    Tell(offer);
  }
}

void ArrangedTransport::Tell(const TransferOffer& offer) {
  const int arranger = group_.devices.front();
  if (arranger == identity_.device) {
    arranger_.Add(offer);
  } else {
    link_->Offer(arranger, offer);
  }
}

bool ArrangedTransport::TellReady() {
  const size_t before = held_.size();
  std::set<std::tuple<int, uint64_t, Tag>> waiting;  // Peer or list, and tag.
  std::erase_if(held_, [&](const TransferOffer& offer) {
    const ArrangedOperation* operation = operations_.Find(offer.id);
    if (operation == nullptr) return true;
    const auto key = std::make_tuple(offer.peer, offer.group, offer.tag);
    const std::shared_ptr<void>& after = operation->part.after;
    if (waiting.contains(key) || (after != nullptr && !mover_->Passed(after))) {
      waiting.insert(key);
      return false;
    }
    Tell(offer);
    return true;
  });
  return held_.size() < before;
}

void ArrangedTransport::Abort(absl::Status status) {
  if (status.ok()) status = absl::CancelledError("the transport was aborted");
  {
    absl::MutexLock lock(&mutex_);
    if (!life_.Abort(status)) return;
  }
  mover_->InterruptAt(absl::InfinitePast());
  control_->Abort(std::move(status));
}

void ArrangedTransport::Drain(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  const absl::Time drained_at = SteadyNow() + kDrain;
  life_.Lose(status, drained_at);
  mover_->InterruptAt(drained_at);
}

bool ArrangedTransport::HasWork() const {
  return life_.failing() || life_.stopped() || operations_.any_refused() || !orders_.empty() ||
         arranger_.any_offers() || arranger_.own_due();
}

// Without the mutex, by the kernel's clock that nobody sets: a wait for a condition with a time is
// too dear for one that ends so soon.
void ArrangedTransport::Pause() {
  mutex_.Unlock();
  absl::SleepFor(kLook);
  mutex_.Lock();
}

void ArrangedTransport::Loop() {
  AskForShortTurns();
  absl::Time spin_until = absl::InfinitePast();
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return HasWork() || !held_.empty();
      };
      const absl::Time now = SteadyNow();
      if (life_.Drains(now)) {
        Pause();
      } else if (rounds_.idle() && held_.empty()) {
        mutex_.Await(absl::Condition(&woken));
      } else if (now > spin_until && !HasWork()) {
        Pause();
      }
      if (life_.stopped() && !operations_.any_refused()) return;
    }
    if (Work()) spin_until = SteadyNow() + kSpin;
  }
}

// Whether anything happened.
bool ArrangedTransport::Work() {
  std::deque<TransferOrder> orders;
  std::vector<TransferOrder> for_others;
  std::vector<PostedOperations::Refusal> refused;
  bool any = false;
  bool failed = false;
  bool fails = false;
  {
    absl::MutexLock lock(&mutex_);
    any = arranger_.any_offers();
    orders.swap(orders_);
    refused = operations_.TakeRefused();
    failed = life_.failed();
    fails = life_.MustFail(SteadyNow(), operations_.empty());
    if (failed || fails) {
      arranger_.Clear();
    } else {
      any |= TellReady();
      for_others = arranger_.Arrange();
    }
  }
  for (const auto& [done, status] : refused) done(status);
  if (fails) FailAll();
  if (failed || fails) return true;
  TellOthers(for_others);
  {
    absl::MutexLock lock(&mutex_);
    for (const TransferOrder& order : arranger_.TakeOwn()) orders.push_back(order);
  }
  for (const TransferOrder& order : orders) Follow(order);
  const absl::StatusOr<bool> ended = CollectEnded();
  if (!ended.ok()) Fail(ended.status());
  return any || !orders.empty() || !refused.empty() || !ended.ok() || *ended;
}

void ArrangedTransport::TellOthers(const std::vector<TransferOrder>& orders) {
  for (const TransferOrder& order : orders) {
    link_->Order(order, [this, round = order.round] {
      absl::MutexLock lock(&mutex_);
      arranger_.Told(round);
    });
  }
}

void ArrangedTransport::Follow(const TransferOrder& order) {
  absl::Status refusal;
  {
    absl::MutexLock lock(&mutex_);
    const ArrangedOperation* operation = operations_.Find(order.id);
    if (operation == nullptr) return;
    if (order.mismatch) {
      refusal = MismatchOf(*operation, identity_.device, order);
    } else {
      rounds_.Add(order.id, operation->part);
    }
  }
  if (order.mismatch) return Finish(order.id, std::move(refusal));
  if (order.last_of_round) StartRound();
}

void ArrangedTransport::StartRound() {
  for (const uint64_t id : rounds_.TakeEmpty()) Finish(id, absl::OkStatus());
  if (absl::Status started = rounds_.Start(); !started.ok()) Fail(started);
}

absl::StatusOr<bool> ArrangedTransport::CollectEnded() {
  ASSIGN_OR_RETURN(const std::vector<uint64_t> ended, rounds_.TakeEnded());
  for (const uint64_t id : ended) Finish(id, absl::OkStatus());
  return !ended.empty();
}

void ArrangedTransport::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  life_.Break(status);
}

void ArrangedTransport::FailAll() {
  {
    absl::MutexLock connecting(&connecting_);
    mover_->Stop();
  }
  std::vector<Done> dones;
  absl::Status failure;
  {
    absl::MutexLock lock(&mutex_);
    dones = operations_.RemoveAll();
    held_.clear();
    life_.SetFailed();
    failure = life_.failure();
  }
  rounds_.Clear();
  for (const Done& done : dones) done(failure);
}

void ArrangedTransport::Finish(uint64_t id, absl::Status status) {
  Done done;
  {
    absl::MutexLock lock(&mutex_);
    done = operations_.Remove(id);
  }
  done(std::move(status));
}

}  // namespace stagewright
