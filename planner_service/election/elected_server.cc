#include "planner_service/election/elected_server.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/channel/address.h"
#include "planner_service/election/follower.h"
#include "planner_service/service/door.h"
#include "planner_service/store/etcd/etcd_client.h"
#include "planner_service/store/etcd/etcd_election.h"
#include "planner_service/store/etcd/etcd_store.h"

namespace stagewright {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(250);  // Between looks at who leads.

class ElectedServer : public PlannerServer {
 public:
  ElectedServer(ServerOptions options, ElectionOptions election)
      : options_(std::move(options)), election_(std::move(election)) {}
  ~ElectedServer() override { Shutdown(absl::Seconds(1)); }

  absl::Status Init() {
    ASSIGN_OR_RETURN(place_, ParseEtcdPlace(election_.store));
    client_ = std::make_shared<EtcdClient>(place_);
    ASSIGN_OR_RETURN(follower_, Follower::Start(options_.listen, options_.max_message_mib));
    options_.listen = follower_->address();  // A port that was picked stays.
    if (election_.advertise.empty()) election_.advertise = options_.listen;
    RETURN_IF_ERROR(Run());
    thread_ = std::thread([this] {
      while (!stop_.WaitForNotificationWithTimeout(kLook)) {
        if (const absl::Status status = Run(); !status.ok()) Say(status.message());
      }
    });
    return absl::OkStatus();
  }

  void Shutdown(absl::Duration grace) override {
    if (!thread_.joinable()) return;
    stop_.Notify();
    thread_.join();
    if (leading_ != nullptr) leading_->Shutdown(grace);
    if (follower_ != nullptr) follower_->Shutdown(grace);
    leading_.reset();
    leadership_.reset();  // The next one need not wait for the lease.
  }

  std::string address() const override { return options_.listen; }
  std::string metrics_address() const override {
    absl::MutexLock lock(&mutex_);
    return metrics_address_;
  }
  std::vector<std::string> notes() const override {
    absl::MutexLock lock(&mutex_);
    return {said_};
  }
  std::string security() const override {
    return "several planners: in the clear between each other and to etcd";
  }

 private:
  // Does what is next for the role that it has. Errors are of the moment.
  absl::Status Run() {
    if (leading_ != nullptr) return leadership_->holds() ? absl::OkStatus() : StepDown();
    // The port was taken when it was to follow again.
    if (follower_ == nullptr) {
      ASSIGN_OR_RETURN(follower_, Follower::Start(options_.listen, options_.max_message_mib));
    }
    auto state = Campaign(client_, place_.prefix, election_.advertise, election_.lease);
    if (!state.ok()) {
      follower_->Follow("");
      return state.status();
    }
    if (state->won != nullptr) return Lead(std::move(state->won));
    follower_->Follow(state->leader);
    Say(absl::StrCat("following the planner at ", state->leader));
    return absl::OkStatus();
  }

  absl::Status Lead(std::unique_ptr<Leadership> leadership) {
    ServerOptions options = options_;
    options.open_store = [this, token = leadership->token()]() -> absl::StatusOr<OpenedStore> {
      OpenedStore opened;
      ASSIGN_OR_RETURN(opened.store, OpenEtcdStore(client_, place_.prefix, token));
      return opened;
    };
    follower_.reset();  // The address is the leader's now.
    auto leading = PlannerServer::Start(options);
    if (!leading.ok()) {
      ASSIGN_OR_RETURN(follower_, Follower::Start(options_.listen, options_.max_message_mib));
      return leading.status();
    }
    leading_ = *std::move(leading);
    leadership_ = std::move(leadership);
    {
      absl::MutexLock lock(&mutex_);
      metrics_address_ = leading_->metrics_address();
    }
    Say("leading");
    return absl::OkStatus();
  }

  // Jobs run on; whoever leads next finds them.
  absl::Status StepDown() {
    Say("not leading any more");
    leading_->Shutdown(absl::ZeroDuration());
    leading_.reset();
    leadership_.reset();
    ASSIGN_OR_RETURN(follower_, Follower::Start(options_.listen, options_.max_message_mib));
    return absl::OkStatus();
  }

  void Say(absl::string_view what) {
    absl::MutexLock lock(&mutex_);
    if (said_ == what) return;
    said_ = std::string(what);
    if (thread_.joinable() && election_.log != nullptr) election_.log(said_);
  }

  ServerOptions options_;
  ElectionOptions election_;
  EtcdPlace place_;
  std::shared_ptr<EtcdClient> client_;
  std::unique_ptr<Leadership> leadership_;
  std::unique_ptr<PlannerServer> leading_;
  std::unique_ptr<Follower> follower_;
  mutable absl::Mutex mutex_;
  std::string metrics_address_ ABSL_GUARDED_BY(mutex_);
  std::string said_ ABSL_GUARDED_BY(mutex_);
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PlannerServer>> StartElected(const ServerOptions& options,
                                                            const ElectionOptions& election) {
  if (!options.door.tls.empty()) {
    return absl::InvalidArgumentError(
        "--tls-cert with --store etcd://...: planners speak to each other in the clear");
  }
  RETURN_IF_ERROR(Door::Open(options.listen, options.door).status());
  if (!options.door.token_file.empty() && !election.advertise.empty() &&
      !IsLoopback(election.advertise)) {
    return absl::InvalidArgumentError(
        "--token-file with --advertise of another machine: tokens would travel in the clear");
  }
  auto server = std::make_unique<ElectedServer>(options, election);
  RETURN_IF_ERROR(server->Init());
  return std::unique_ptr<PlannerServer>(std::move(server));
}

}  // namespace stagewright
