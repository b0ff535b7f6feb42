#include "planner_service/election/follower.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "planner_service/election/relay.h"

namespace stagewright {
namespace {

class RelayingFollower : public Follower {
 public:
  ~RelayingFollower() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const std::string& listen, int max_message_mib) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    // As the leader's: not shared, and pinged by workers every 5 s.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 2000);
    builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(max_message_mib << 20);
    builder.SetMaxSendMessageSize(-1);
    builder.RegisterCallbackGenericService(&relay_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      server_.reset();
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", listen, ": is the port in use?"));
    }
    address_ = absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
    return absl::OkStatus();
  }

  void Shutdown(absl::Duration grace) override {
    if (server_ == nullptr) return;
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    server_->Wait();
    server_.reset();
  }

  std::string address() const override { return address_; }

  void Follow(const std::string& leader) override {
    absl::MutexLock lock(&mutex_);
    if (leader == leader_) return;
    leader_ = leader;
    channel_.reset();
    if (leader.empty()) return;
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    // A leader whose machine is gone ends no connection.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    channel_ = grpc::CreateCustomChannel(leader, grpc::InsecureChannelCredentials(), arguments);
  }

 private:
  std::shared_ptr<grpc::Channel> Leader() {
    absl::MutexLock lock(&mutex_);
    return channel_;
  }

  absl::Mutex mutex_;
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  Relay relay_{[this] { return Leader(); }};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Follower>> Follower::Start(const std::string& listen,
                                                          int max_message_mib) {
  auto follower = std::make_unique<RelayingFollower>();
  RETURN_IF_ERROR(follower->Listen(listen, max_message_mib));
  return std::unique_ptr<Follower>(std::move(follower));
}

}  // namespace stagewright
