#include "worker_daemon/daemon/planner_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/channel/unreached.h"
#include "common/clock/steady_now.h"
#include "common/clock/steady_wait.h"

namespace stagewright {
namespace {

constexpr absl::Duration kFirstRetry = absl::Milliseconds(200);
constexpr absl::Duration kLongestRetry = absl::Seconds(5);
constexpr absl::Duration kDefaultHeartbeat = absl::Seconds(2);
// A planner whose machine vanishes closes no connection: pings find out.
constexpr int kKeepaliveMs = 5000;

}  // namespace

absl::StatusOr<std::unique_ptr<PlannerLink>> PlannerLink::Open(const std::string& address,
                                                               const ChannelSecurity& security,
                                                               Outbox* outbox,
                                                               Callbacks callbacks) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kLongestRetry)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  ASSIGN_OR_RETURN(const auto channel, OpenChannel(address, security, arguments));
  return std::unique_ptr<PlannerLink>(
      new PlannerLink(address, security, channel, outbox, std::move(callbacks)));
}

PlannerLink::PlannerLink(std::string address, ChannelSecurity security,
                         const std::shared_ptr<grpc::Channel>& channel, Outbox* outbox,
                         Callbacks callbacks)
    : address_(std::move(address)),
      security_(std::move(security)),
      outbox_(outbox),
      callbacks_(std::move(callbacks)),
      stub_(v1::WorkerService::NewStub(channel)),
      heartbeat_interval_ns_(absl::ToInt64Nanoseconds(kDefaultHeartbeat)) {
  thread_ = std::thread([this] { Run(); });
}

PlannerLink::~PlannerLink() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  thread_.join();
}

void PlannerLink::Run() {
  absl::Duration retry = kFirstRetry;
  absl::Time begun_anew = absl::InfinitePast();
  while (true) {
    bool registered = false;
    const grpc::Status status = RunStream(&registered);
    // Not each time: a stream may break whenever the worker has registered.
    if (registered && SteadyNow() - begun_anew > kLongestRetry) {
      retry = kFirstRetry;
      begun_anew = SteadyNow();
    }
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    Log(LogLevel::kWarning,
        absl::StrCat("planner at ", address_, ": ",
                     WithAdvice(status.error_message(), address_, security_), "; trying again"));
    AwaitFor(mutex_, absl::Condition(&stopping_), retry);
    if (stopping_) return;
    retry = std::min(retry * 2, kLongestRetry);
  }
}

grpc::Status PlannerLink::RunStream(bool* registered) {
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return grpc::Status::CANCELLED;
    context_ = &context;
  }
  std::unique_ptr<Stream> stream = stub_->Connect(&context);
  v1::ConnectRequest registration;
  *registration.mutable_register_() = callbacks_.registration();
  std::atomic<bool> ended{false};
  std::thread writer;
  // Whether it could be written, reading says, too: a planner may have answered and ended the
  // stream before the worker wrote, and Finish waits for ever while an answer is unread.
  stream->Write(registration);
  v1::ConnectResponse message;
  while (stream->Read(&message)) {
    if (message.has_registered() && !writer.joinable()) {
      *registered = true;
      heartbeat_interval_ns_ = message.registered().heartbeat_interval_ns();
      if (message.registered().numbers_log_lines()) outbox_->TellAgain();
      Log(LogLevel::kInfo, absl::StrCat("registered with the planner at ", address_));
      callbacks_.on_connected(true);
      writer = std::thread([this, &stream, &ended] { WriteLoop(stream.get(), &ended); });
    }
    callbacks_.on_message(message);
  }
  ended = true;
  outbox_->Wake();
  if (writer.joinable()) {
    writer.join();
    callbacks_.on_connected(false);
  }
  const grpc::Status status = stream->Finish();
  absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  return status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it closed the stream") : status;
}

void PlannerLink::WriteLoop(Stream* stream, std::atomic<bool>* ended) {
  while (!*ended) {
    auto message = outbox_->Pop(absl::Nanoseconds(heartbeat_interval_ns_.load()));
    if (*ended) {
      if (message.has_value()) outbox_->PushFront(*std::move(message));
      return;
    }
    v1::ConnectRequest heartbeat;
    heartbeat.mutable_heartbeat();
    if (!stream->Write(message.has_value() ? *message : heartbeat)) {
      if (message.has_value()) outbox_->PushFront(*std::move(message));
      return;
    }
    if (callbacks_.on_lacking_steps == nullptr) continue;
    for (const std::string& job : outbox_->LackingSteps()) callbacks_.on_lacking_steps(job);
  }
}

void PlannerLink::Log(LogLevel level, const std::string& line) {
  if (line == last_logged_) return;  // A planner that stays away is one line, not one per retry.
  last_logged_ = line;
  stagewright::Log(level, line);
}

}  // namespace stagewright
