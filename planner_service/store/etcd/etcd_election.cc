#include "planner_service/store/etcd/etcd_election.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_wait.h"

namespace stagewright {
namespace {

using Clock = std::chrono::steady_clock;  // Runs on while a process is stopped.

// Keeps the lease on a thread of its own.
class KeptLeadership : public Leadership {
 public:
  KeptLeadership(std::shared_ptr<EtcdClient> client, FencingToken token, int64_t lease,
                 absl::Duration ttl, Clock::time_point granted)
      : client_(std::move(client)), token_(std::move(token)), lease_(lease), ttl_(ttl) {
    Extend(granted);
    keeper_ = std::thread([this] { Keep(); });
  }
  ~KeptLeadership() override {
    stop_.Notify();
    keeper_.join();
    client_->RevokeLease(lease_).IgnoreError();  // It ends by itself.
  }

  FencingToken token() const override { return token_; }
  bool holds() const override { return !over_ && Clock::now() < until_.load(); }

 private:
  void Extend(Clock::time_point since) { until_ = since + absl::ToChronoNanoseconds(ttl_); }

  void Keep() {
    while (!stop_.WaitFor(ttl_ / 4)) {
      const Clock::time_point asked = Clock::now();  // The cluster counts from later on.
      const absl::Status kept = client_->KeepLease(lease_);
      if (kept.ok()) {
        Extend(asked);
      } else if (absl::IsNotFound(kept)) {
        over_ = true;
        return;
      }
    }
  }

  const std::shared_ptr<EtcdClient> client_;
  const FencingToken token_;
  const int64_t lease_;
  const absl::Duration ttl_;
  std::atomic<Clock::time_point> until_;
  std::atomic<bool> over_ = false;
  SteadyNotification stop_;
  std::thread keeper_;
};

}  // namespace

absl::StatusOr<ElectionState> Campaign(std::shared_ptr<EtcdClient> client,
                                       const std::string& prefix, const std::string& about,
                                       absl::Duration ttl) {
  ElectionState state;
  ASSIGN_OR_RETURN(state.leader, LeaderOf(*client, prefix));
  if (!state.leader.empty()) return state;
  const Clock::time_point asked = Clock::now();
  ASSIGN_OR_RETURN(const EtcdLease lease, client->GrantLease(ttl));
  const std::string key = LeaderKey(prefix);
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare* absent = request.add_compare();
  absent->set_target(etcdserverpb::Compare::VERSION);
  absent->set_key(key);
  absent->set_version(0);
  etcdserverpb::PutRequest* put = request.add_success()->mutable_request_put();
  put->set_key(key);
  put->set_value(about);
  put->set_lease(lease.id);
  request.add_failure()->mutable_request_range()->set_key(key);
  const auto answer = client->Txn(request);
  if (!answer.ok() || !answer->succeeded()) {
    client->RevokeLease(lease.id).IgnoreError();
    RETURN_IF_ERROR(answer.status());
    const auto& found = answer->responses(0).response_range().kvs();
    if (!found.empty()) state.leader = found[0].value();
    return state;
  }
  state.leader = about;
  // Nobody may believe that it leads for longer than the cluster does.
  state.won = std::make_unique<KeptLeadership>(std::move(client),
                                               FencingToken{key, answer->header().revision()},
                                               lease.id, std::min(ttl, lease.ttl), asked);
  return state;
}

std::string LeaderKey(const std::string& prefix) { return absl::StrCat(prefix, "/leader"); }

absl::StatusOr<std::string> LeaderOf(EtcdClient& client, const std::string& prefix) {
  etcdserverpb::RangeRequest request;
  request.set_key(LeaderKey(prefix));
  ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response, client.Range(request));
  return response.kvs().empty() ? std::string() : response.kvs(0).value();
}

}  // namespace stagewright
