#include "worker_daemon/transport/ucx/ucx_transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
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

// UCX's keep-alive runs inside its progress call, so no sleep is longer.
constexpr absl::Duration kLongestSleep = absl::Milliseconds(500);

}  // namespace

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(TransportIdentity identity,
                                                                   const UcxOptions& options) {
  RETURN_IF_ERROR(CheckIdentity(identity));
  RETURN_IF_ERROR(GenerationKey::Check(options.key));
  ASSIGN_OR_RETURN(std::unique_ptr<UcxWorker> worker, UcxWorker::Create(options));
  const int wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd < 0) return absl::InternalError(absl::StrCat("eventfd: ", std::strerror(errno)));
  return std::unique_ptr<UcxTransport>(new UcxTransport(
      std::move(identity), options, std::move(worker), LifeLine::Create(), wake_fd));
}

UcxTransport::UcxTransport(TransportIdentity identity, const UcxOptions& options,
                           std::unique_ptr<UcxWorker> worker, std::unique_ptr<LifeLine> life,
                           int wake_fd)
    : identity_(std::move(identity)),
      spin_(options.spin),
      worker_address_(worker->address()),
      life_name_(life == nullptr ? "" : life->name()),
      wake_fd_(wake_fd),
      engine_(identity_, options.key, std::move(worker), std::move(life)),
      thread_([this] { Loop(); }) {}

UcxTransport::~UcxTransport() {
  Abort(absl::CancelledError("the transport was closed"));
  stopping_ = true;
  Enqueue([](UcxEngine&) {});
  thread_.join();
  close(wake_fd_);
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
    wake = std::exchange(sleeping_, false);
  }
  if (!wake) return;
  const uint64_t one = 1;
  // Only fails when the counter is full, and then the thread wakes anyway.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
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
    const bool commanded = RunCommands();
    const bool progressed = engine_.Progress();
    if (stopping_ && !has_commands_ && engine_.closed()) break;
    const absl::Time now = SteadyNow();
    if (commanded || progressed) {
      busy = now;
    } else if (now - busy >= spin_) {
      Sleep();
    } else {
      std::this_thread::yield();  // To those that wait for what has ended, if they have no core.
    }
  }
}

void UcxTransport::Sleep() {
  {
    absl::MutexLock lock(&mutex_);
    if (!commands_.empty()) return;
    sleeping_ = true;
  }
  if (engine_.Arm()) {
    const absl::Duration until_timer = engine_.next_timer() - SteadyNow();
    const absl::Duration longest = std::clamp(until_timer, absl::ZeroDuration(), kLongestSleep);
    std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
    for (const int fd : engine_.wake_fds()) fds.push_back({fd, POLLIN, 0});
    poll(fds.data(), fds.size(),
         static_cast<int>(absl::ToInt64Milliseconds(longest + absl::Microseconds(999))));
    uint64_t count = 0;
    if ((fds[0].revents & POLLIN) != 0) {
      [[maybe_unused]] const ssize_t bytes = read(wake_fd_, &count, sizeof(count));
    }
  }
  absl::MutexLock lock(&mutex_);
  sleeping_ = false;
}

}  // namespace stagewright
