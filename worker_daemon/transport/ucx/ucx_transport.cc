#include "worker_daemon/transport/ucx/ucx_transport.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/clock/steady_now.h"
#include "common/clock/steady_wait.h"
#include "worker_daemon/transport/short_turns.h"
#include "worker_daemon/transport/unreached.h"

namespace stagewright {
namespace {

// The transport that this thread has a batch of, and the one whose turn it takes.
thread_local const UcxTransport* held = nullptr;
thread_local const UcxTransport* turning = nullptr;

}  // namespace

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(TransportIdentity identity,
                                                                   const UcxOptions& options) {
  RETURN_IF_ERROR(CheckIdentity(identity));
  RETURN_IF_ERROR(GenerationKey::Check(options.key));
  ASSIGN_OR_RETURN(std::unique_ptr<UcxWorker> worker, UcxWorker::Create(options));
  ASSIGN_OR_RETURN(std::unique_ptr<EventSleep> sleep, EventSleep::Create());
  return std::unique_ptr<UcxTransport>(new UcxTransport(
      std::move(identity), options, std::move(worker), LifeLine::Create(), std::move(sleep)));
}

UcxTransport::UcxTransport(TransportIdentity identity, const UcxOptions& options,
                           std::unique_ptr<UcxWorker> worker, std::unique_ptr<LifeLine> life,
                           std::unique_ptr<EventSleep> sleep)
    : identity_(std::move(identity)),
      spin_(options.spin),
      longest_sleep_(options.longest_sleep),
      patience_(options.patience),
      worker_address_(worker->address()),
      life_name_(life == nullptr ? "" : life->name()),
      sleep_(std::move(sleep)),
      engine_(identity_, options.key, std::move(worker), std::move(life)),
      thread_([this] { Loop(); }) {}

UcxTransport::~UcxTransport() {
  Abort(absl::CancelledError("the transport was closed"));
  stopping_ = true;
  Enqueue([](UcxEngine&) {});
  thread_.join();
}

std::string UcxTransport::Address() const {
  TransportAddress address{"ucx", identity_, ""};
  AppendString(worker_address_, &address.payload);
  AppendString(ProcessName(), &address.payload);
  AppendString(life_name_, &address.payload);
  return EncodeAddress(address);
}

absl::Status UcxTransport::Connect(const std::vector<Peer>& peers, absl::Time deadline) {
  std::map<int, UcxPeerAddress> addresses;
  for (const Peer& peer : peers) {
    ASSIGN_OR_RETURN(const TransportAddress address,
                     DecodePeerAddress("ucx", identity_, peer.device, peer.address));
    absl::string_view payload = address.payload;
    UcxPeerAddress& parts = addresses[peer.device];
    if (!ConsumeString(&payload, &parts.worker) || !ConsumeString(&payload, &parts.process) ||
        !ConsumeString(&payload, &parts.life) || !payload.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("address of device ", peer.device, ": malformed"));
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(connected_, true)) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", identity_.device, " is already connected"));
    }
    for (const auto& [device, address] : addresses) connecting_.insert(device);
  }
  Enqueue([this, addresses = std::move(addresses)](UcxEngine& engine) {
    engine.Connect(addresses,
                   [this](int device, absl::Status status) { OnEdge(device, std::move(status)); });
  });
  absl::MutexLock lock(&mutex_);
  if (!AwaitUntil(mutex_, absl::Condition(this, &UcxTransport::EdgesSettled), deadline)) {
    return WithUnreached(absl::DeadlineExceededError(absl::StrCat(
                             "device ", identity_.device, ": no answer in time from device ",
                             absl::StrJoin(connecting_, ", "))),
                         connecting_);
  }
  return connect_failure_;
}

void UcxTransport::OnEdge(int device, absl::Status status) {
  absl::MutexLock lock(&mutex_);
  connecting_.erase(device);
  connect_failure_.Update(std::move(status));
}

void UcxTransport::Send(int peer, Tag tag, const void* data, size_t bytes, Done done) {
  UcxOperation operation{true, peer, tag, const_cast<void*>(data), bytes, std::move(done)};
  Enqueue([operation = std::move(operation)](UcxEngine& engine) mutable {
    engine.Post(std::move(operation));
  });
}

void UcxTransport::Receive(int peer, Tag tag, void* data, size_t bytes, Done done) {
  UcxOperation operation{false, peer, tag, data, bytes, std::move(done)};
  Enqueue([operation = std::move(operation)](UcxEngine& engine) mutable {
    engine.Post(std::move(operation));
  });
}

void UcxTransport::Abort(absl::Status status) {
  if (status.ok()) status = absl::CancelledError("the transport was aborted");
  Enqueue([status = std::move(status)](UcxEngine& engine) { engine.Abort(status); });
}

void UcxTransport::Enqueue(std::function<void(UcxEngine&)> command) {
  bool wake = false;
  {
    absl::MutexLock lock(&mutex_);
    commands_.push_back(std::move(command));
    has_commands_.store(true, std::memory_order_release);
    if (held != this && helpers_ == 0) wake = std::exchange(sleeping_, false);
  }
  if (wake) sleep_->Wake();
}

void UcxTransport::Hold() { held = this; }

void UcxTransport::Release() {
  held = nullptr;
  if (turning == this) return;  // In a `done`: there will be another turn.
  if (has_commands_.load(std::memory_order_acquire)) {
    Lend([] { return true; }, absl::ZeroDuration());
  }
}

void UcxTransport::Help(absl::FunctionRef<bool()> ready) {
  if (!ready()) Lend(ready, patience_);
}

void UcxTransport::Lend(absl::FunctionRef<bool()> ready, absl::Duration patience) {
  {
    absl::MutexLock lock(&mutex_);
    ++helpers_;
  }
  const absl::Time end = SteadyNow() + patience;
  for (bool over = false; !over;) {
    bool any = false;
    {
      absl::MutexLock lock(&engine_mutex_);
      any = TakeTurn();
    }
    over = ready() || SteadyNow() >= end;
    if (!over && !any) std::this_thread::yield();
  }
  // What was started before is in the last turns here, what is started from now on wakes the
  // thread, and so does what arrives once the engine is armed.
  {
    absl::MutexLock lock(&mutex_);
    --helpers_;
  }
  bool wake = false;
  {
    absl::MutexLock lock(&engine_mutex_);
    const bool quiet = !TakeTurn() || !TakeTurn();
    wake = helpers_ == 0 && !(quiet && engine_.Arm());
  }
  if (!wake) return;
  {
    absl::MutexLock lock(&mutex_);
    wake = std::exchange(sleeping_, false);
  }
  if (wake) sleep_->Wake();
}

bool UcxTransport::TakeTurn() {
  turning = this;
  const bool commanded = RunCommands();
  const bool progressed = engine_.Progress();
  turning = nullptr;
  return commanded || progressed;
}

bool UcxTransport::RunCommands() {
  if (!has_commands_.load(std::memory_order_acquire)) return false;
  std::deque<std::function<void(UcxEngine&)>> commands;
  {
    absl::MutexLock lock(&mutex_);
    commands.swap(commands_);
    has_commands_.store(false, std::memory_order_relaxed);
  }
  for (std::function<void(UcxEngine&)>& command : commands) command(engine_);
  return true;
}

void UcxTransport::Loop() {
  AskForShortTurns();
  absl::Time busy = SteadyNow();
  while (true) {
    const bool alone = helpers_ == 0;
    bool any = false;
    if (alone) {
      absl::MutexLock lock(&engine_mutex_);
      any = TakeTurn();
      if (stopping_ && !has_commands_ && engine_.closed()) break;
    }
    const absl::Time now = SteadyNow();
    if (any) {
      busy = now;
    } else if (!alone || now - busy >= spin_) {
      Sleep(/*quiet=*/alone);
    } else {
      std::this_thread::yield();  // To those that wait for what has ended, if they have no core.
    }
  }
}

void UcxTransport::Sleep(bool quiet) {
  {
    absl::MutexLock lock(&mutex_);
    if (helpers_ == 0 && !commands_.empty()) return;
    sleeping_ = true;
  }
  bool armed = true;
  absl::Duration longest = longest_sleep_;
  {
    absl::MutexLock lock(&engine_mutex_);
    sleep_->Watch(engine_.event_fd(), engine_.end_fds());
    if (helpers_ == 0) armed = quiet && engine_.Arm();  // Otherwise the last of them does.
    longest = std::clamp(engine_.next_timer() - SteadyNow(), absl::ZeroDuration(), longest);
  }
  if (armed) {
    sleep_->SleepFor(longest);
  } else {
    std::this_thread::yield();  // What is under way may need the core.
  }
  absl::MutexLock lock(&mutex_);
  sleeping_ = false;
}

}  // namespace stagewright
