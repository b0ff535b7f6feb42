#include "planner_service/election/elected_server.h"

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/channel/address.h"
#include "common/channel/credentials.h"
#include "planner_service/election/current_answers.h"
#include "planner_service/election/follower.h"
#include "planner_service/service/door.h"
#include "planner_service/store/etcd/etcd_client.h"
#include "planner_service/store/etcd/etcd_election.h"
#include "planner_service/store/etcd/etcd_store.h"
#include "planner_service/store/etcd/leader_watch.h"

namespace stagewright {
namespace {

// Between looks at whether this planner still leads; at who does, too, while etcd does not say it.
constexpr absl::Duration kLook = absl::Milliseconds(250);

// What a leader says of itself: "HOST:PORT", and behind a space where workers come in, if that is
// another address.
struct Addresses {
  std::string clients, workers;
};

std::string About(const Addresses& addresses) {
  return addresses.workers.empty() ? addresses.clients
                                   : absl::StrCat(addresses.clients, " ", addresses.workers);
}

Addresses AddressesOf(absl::string_view about) {
  const std::pair<std::string, std::string> both = absl::StrSplit(about, absl::MaxSplits(' ', 1));
  return {both.first, both.second.empty() ? both.first : both.second};
}

class ElectedServer : public PlannerServer {
 public:
  // The door stays open whoever leads: its files may have gone bad when this planner's turn comes.
  ElectedServer(ServerOptions options, ElectionOptions election, std::string security)
      : options_(std::move(options)),
        election_(std::move(election)),
        security_(std::move(security)) {}
  ~ElectedServer() override { Shutdown(absl::Seconds(1)); }

  absl::Status Init() {
    ASSIGN_OR_RETURN(place_, ParseEtcdPlace(election_.store));
    client_ = std::make_shared<EtcdClient>(place_, absl::Seconds(5),
                                           ClientCredentials(election_.etcd, "--etcd"));
    RETURN_IF_ERROR(StartFollowing());
    options_.listen = followers_.front()->address();  // A port that was picked stays.
    if (election_.advertise.empty()) election_.advertise = options_.listen;
    if (!options_.worker_listen.empty()) {
      options_.worker_listen = followers_.back()->address();
      if (election_.advertise_workers.empty()) election_.advertise_workers = options_.worker_listen;
    }
    watch_ = std::make_unique<LeaderWatch>(client_, place_.prefix);
    RETURN_IF_ERROR(Run());
    thread_ = std::thread([this] {
      while (!stop_.HasBeenNotified()) {
        watch_->AwaitChange(kLook);
        if (stop_.HasBeenNotified()) return;
        if (const absl::Status status = Run(); !status.ok()) Say(status.message());
      }
    });
    return absl::OkStatus();
  }

  void Shutdown(absl::Duration grace) override {
    if (!thread_.joinable()) return;
    stop_.Notify();
    watch_->Wake();
    thread_.join();
    if (leading_ != nullptr) leading_->Shutdown(grace);
    for (const auto& follower : followers_) follower->Shutdown(grace);
    leading_.reset();
    leadership_.reset();  // The next one need not wait for the lease.
  }

  std::string address() const override { return options_.listen; }
  std::string worker_address() const override { return options_.worker_listen; }
  std::string metrics_address() const override {
    absl::MutexLock lock(&mutex_);
    return metrics_address_;
  }
  std::vector<std::string> notes() const override {
    absl::MutexLock lock(&mutex_);
    return {said_};
  }
  std::string security() const override { return security_; }

 private:
  // Does what is next for the role that it has. Errors are of the moment.
  absl::Status Run() {
    options_.opened_door->Refresh();
    if (leading_ != nullptr) return leadership_->holds() ? absl::OkStatus() : StepDown();
    // The port was taken when it was to follow again.
    if (followers_.empty()) RETURN_IF_ERROR(StartFollowing());
    absl::StatusOr<std::string> leader = Leader();
    if (leader.ok() && leader->empty()) leader = TryToLead();
    if (leading_ != nullptr) return absl::OkStatus();
    const Addresses addresses = AddressesOf(leader.value_or(""));
    if (!followers_.empty()) Follow(addresses);
    RETURN_IF_ERROR(leader.status());
    Say(absl::StrCat("following the planner at ", addresses.clients));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Leader() {
    if (std::optional<std::string> heard = watch_->leader()) return *std::move(heard);
    return LeaderOf(*client_, place_.prefix);
  }

  // Leads, or says who does.
  absl::StatusOr<std::string> TryToLead() {
    const std::string about = About({election_.advertise, election_.advertise_workers});
    ASSIGN_OR_RETURN(ElectionState state, Campaign(client_, place_.prefix, about, election_.lease));
    if (state.won != nullptr) RETURN_IF_ERROR(Lead(std::move(state.won)));
    return state.leader;
  }

  // At each address that it listens on.
  absl::Status StartFollowing() {
    TlsFiles leader = options_.door.tls;
    if (!election_.peer_authorities.empty()) leader.authorities = election_.peer_authorities;
    std::vector<std::unique_ptr<Follower>> started;
    for (const std::string& listen : {options_.listen, options_.worker_listen}) {
      if (listen.empty()) continue;
      FollowerOptions follows{listen, options_.max_message_mib, options_.door.tls, leader, nullptr};
      if (started.empty()) {  // Where clients come in.
        ASSIGN_OR_RETURN(auto store, OpenEtcdStore(client_, place_.prefix, std::nullopt));
        follows.planner = FollowerPlanner::Make(options_.planning_threads, options_.planning_queue,
                                                options_.opened_door, std::move(store));
      }
      ASSIGN_OR_RETURN(auto follower, Follower::Start(follows));
      started.push_back(std::move(follower));
    }
    followers_ = std::move(started);
    return absl::OkStatus();
  }

  void Follow(const Addresses& leader) {
    followers_.front()->Follow(leader.clients);
    if (followers_.size() > 1) followers_.back()->Follow(leader.workers);
  }

  absl::Status Lead(std::unique_ptr<Leadership> leadership) {
    ServerOptions options = options_;
    options.state = election_.store;  // What is shown; a file of that setting is not in use.
    options.open_store = [this, token = leadership->token()]() -> absl::StatusOr<OpenedStore> {
      OpenedStore opened;
      ASSIGN_OR_RETURN(opened.store, OpenEtcdStore(client_, place_.prefix, token));
      return opened;
    };
    options.intercept = [held = leadership.get()] {
      return OnlyCurrentAnswers([held] { return held->holds(); });
    };
    followers_.clear();  // The addresses are the leader's now.
    auto leading = PlannerServer::Start(options);
    if (!leading.ok()) {
      RETURN_IF_ERROR(StartFollowing());
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
    return StartFollowing();
  }

  void Say(absl::string_view what) {
    absl::MutexLock lock(&mutex_);
    if (said_ == what) return;
    said_ = std::string(what);
    if (thread_.joinable() && election_.log != nullptr) election_.log(said_);
  }

  ServerOptions options_;
  ElectionOptions election_;
  const std::string security_;
  EtcdPlace place_;
  std::shared_ptr<EtcdClient> client_;
  std::unique_ptr<LeaderWatch> watch_;
  std::unique_ptr<Leadership> leadership_;
  std::unique_ptr<PlannerServer> leading_;
  std::vector<std::unique_ptr<Follower>> followers_;  // For clients; for workers, if apart.
  mutable absl::Mutex mutex_;
  std::string metrics_address_ ABSL_GUARDED_BY(mutex_);
  std::string said_ ABSL_GUARDED_BY(mutex_);
  absl::Notification stop_;
  std::thread thread_;
};

// Whether planners can believe each other, as far as flags say it.
absl::Status CheckPeers(const DoorOptions& door, const ElectionOptions& election) {
  const bool tokens = !door.token_file.empty() || !door.jwt.keys_file.empty();
  if (door.tls.empty()) {
    if (!election.peer_authorities.empty())
      return absl::InvalidArgumentError("--peer-ca needs --tls-cert and --tls-key");
    for (const std::string& address : {election.advertise, election.advertise_workers}) {
      if (!tokens || address.empty() || IsLoopback(address)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("tokens with --advertise ", address,
                       ": they would travel in the clear; give --tls-cert and --tls-key"));
    }
    return absl::OkStatus();
  }
  if (!election.peer_authorities.empty() && !door.tls.authorities.empty()) {
    return absl::InvalidArgumentError(
        "--peer-ca with --tls-ca: where callers show certificates, planners are held to --tls-ca, "
        "as all who call; give one of the two");
  }
  if (!election.peer_authorities.empty() || !door.tls.authorities.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--tls-cert with --store etcd://...: planners need --tls-ca, or --peer-ca where callers show "
      "no certificates, to know each other");
}

// The same of what the files say.
absl::Status CheckPeerFiles(const DoorOptions& door, const ElectionOptions& election) {
  if (!election.peer_authorities.empty())
    RETURN_IF_ERROR(CheckTlsFiles({"", "", election.peer_authorities}, false, "--peer"));
  if (door.tls.authorities.empty() || IsPlanner(UrisOfCertificate(door.tls.certificate)))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--tls-cert ", door.tls.certificate,
                                                 ": with --store etcd://... and --tls-ca it needs "
                                                 "the URI stagewright://planner/NAME, by which "
                                                 "planners know who may say for whom it calls"));
}

// Whether the others can reach this planner where it says that it is.
absl::Status CheckAdvertised(absl::string_view flag, const std::string& advertised,
                             absl::string_view listen_flag, const std::string& listen) {
  if (!advertised.empty()) RETURN_IF_ERROR(CheckTarget(flag, advertised));
  const std::string& address = advertised.empty() ? listen : advertised;
  if (address.empty() || !IsWildcard(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      advertised.empty() ? listen_flag : flag, " ", address,
      ": it is no address at which other planners reach this one; give ", flag, " HOST:PORT"));
}

absl::Status CheckEtcd(const ElectionOptions& election) {
  ASSIGN_OR_RETURN(const EtcdPlace place, ParseEtcdPlace(election.store));
  if (!election.etcd.empty())
    return CheckTlsFlags(election.etcd, /*need_certificate=*/false, "--etcd");
  for (const std::string& endpoint : place.endpoints) {
    if (election.etcd_insecure || IsLoopback(endpoint)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--store etcd://", endpoint,
                     ": it is on another machine: give --etcd-ca (and --etcd-cert, --etcd-key), or "
                     "--etcd-insecure to speak to it in the clear"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOptions(const ServerOptions& options, const ElectionOptions& election) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CheckPeers(options.door, election));
  RETURN_IF_ERROR(CheckAdvertised("--advertise", election.advertise, "--listen", options.listen));
  RETURN_IF_ERROR(CheckAdvertised("--advertise-workers", election.advertise_workers,
                                  "--worker-listen", options.worker_listen));
  return CheckEtcd(election);
}

absl::StatusOr<std::unique_ptr<PlannerServer>> StartElected(const ServerOptions& options,
                                                            const ElectionOptions& election) {
  RETURN_IF_ERROR(CheckOptions(options, election));
  ServerOptions opened = options;
  ASSIGN_OR_RETURN(opened.opened_door,
                   Door::Open(options.listen, options.worker_listen, options.door));
  RETURN_IF_ERROR(CheckPeerFiles(options.door, election));
  if (!election.etcd.empty())
    RETURN_IF_ERROR(CheckTlsFiles(election.etcd, /*need_certificate=*/false, "--etcd"));
  const std::string security = absl::StrCat(
      opened.opened_door->description(), "; ", options.door.tls.empty() ? "in the clear" : "TLS",
      " to other planners, ", election.etcd.empty() ? "in the clear" : "TLS", " to etcd");
  auto server = std::make_unique<ElectedServer>(std::move(opened), election, security);
  RETURN_IF_ERROR(server->Init());
  return std::unique_ptr<PlannerServer>(std::move(server));
}

}  // namespace stagewright
