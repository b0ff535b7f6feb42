#include "planner_service/election/follower.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/channel/credentials.h"
#include "common/clock/steady_now.h"
#include "planner_service/election/channel_pool.h"
#include "planner_service/election/relay.h"
#include "planner_service/intake/bounded_service.h"
#include "planner_service/service/rpc.h"
#include "planner_service/service/server.h"

namespace stagewright {
namespace {

class RelayingFollower : public Follower {
 public:
  explicit RelayingFollower(const FollowerOptions& options)
      : options_(options), leader_credentials_(ClientCredentials(options.leader)) {}
  ~RelayingFollower() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen() {
    const std::string& listen = options_.listen;
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    // As the leader's: not shared, pinged by workers every 5 s, and bounded.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 2000);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
    grpc::ResourceQuota quota("stagewright-follower");
    quota.Resize((static_cast<size_t>(options_.max_message_mib) << 20) * kMostMessages);
    builder.SetResourceQuota(quota);
    builder.AddListeningPort(listen, ListeningCredentials(options_.tls), &port);
    builder.SetMaxReceiveMessageSize(options_.max_message_mib << 20);
    builder.SetMaxSendMessageSize(-1);
    RefuseCompression(builder);
    if (options_.planner != nullptr) {
      planning_ = options_.planner->MakeService(
          {std::make_shared<MessageBudget>(static_cast<size_t>(options_.max_message_mib) << 20),
           ToGrpc(NoRoomForMessage())});
      builder.RegisterService(planning_.get());
    }
    builder.RegisterCallbackGenericService(&relay_);
    builder.SetOption(WithoutReflection());  // The leader answers, to whom it may.
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
    if (options_.planner != nullptr) options_.planner->CloseStreams();
    server_->Shutdown(ClockIn(grace));
    server_->Wait();
    server_.reset();
  }

  std::string address() const override { return address_; }

  void Follow(const std::string& leader) override {
    int64_t epoch = 0;
    {
      absl::MutexLock lock(&mutex_);
      if (leader == leader_) return;
      leader_ = leader;
      // Calls of the one before hold its channels until they end.
      channels_ = leader.empty()
                      ? nullptr
                      : std::make_unique<ChannelPool>([this, leader] { return Connect(leader); });
      if (leader.empty() || leader == last_leader_) return;
      last_leader_ = leader;
      epoch = ++epoch_;
    }
    relay_.EndCallsBefore(epoch);
  }

 private:
  std::shared_ptr<grpc::Channel> Connect(const std::string& leader) const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    // Channels of equal arguments would share one connection.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // Planners reach each other by themselves, whatever proxy the environment names.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // A leader whose machine is gone ends no connection: pings find out, however quiet calls are.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    return grpc::CreateCustomChannel(leader, leader_credentials_, arguments);
  }

  Relay::Leader Leader() {
    absl::MutexLock lock(&mutex_);
    if (channels_ == nullptr) return {};
    return {channels_->Take(), epoch_};
  }

  const FollowerOptions options_;
  std::unique_ptr<grpc::Service> planning_;  // Outlives the server.
  const std::shared_ptr<grpc::ChannelCredentials> leader_credentials_;
  absl::Mutex mutex_;
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  std::string last_leader_ ABSL_GUARDED_BY(mutex_);  // The last that was known.
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;        // How many it was.
  std::unique_ptr<ChannelPool> channels_ ABSL_GUARDED_BY(mutex_);
  Relay relay_{[this] { return Leader(); }};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Follower>> Follower::Start(const FollowerOptions& options) {
  auto follower = std::make_unique<RelayingFollower>(options);
  RETURN_IF_ERROR(follower->Listen());
  return std::unique_ptr<Follower>(std::move(follower));
}

}  // namespace stagewright
