// Calls of an etcd cluster, at whichever of its members answers.
#pragma once

#include <grpcpp/security/credentials.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/store/etcd/etcd.grpc.pb.h"

namespace stagewright {

// "etcd://host:port[,host:port]/prefix".
struct EtcdPlace {
  std::vector<std::string> endpoints;
  std::string prefix;  // What all keys begin with; "/" unless named.
};

bool IsEtcdPlace(absl::string_view text);
// INVALID_ARGUMENT quotes what is wrong.
absl::StatusOr<EtcdPlace> ParseEtcdPlace(absl::string_view text);

struct EtcdLease {
  int64_t id = 0;
  absl::Duration ttl;  // What the cluster grants, whatever was asked.
};

// Thread-safe. A call that a member cannot take goes to the next one, as do calls after one that a
// member left unanswered for `patience`. Reads that a member leaves unanswered for half a second
// are asked of the next one, too, and of the one after it; the first answer counts, and later calls
// go where it came from. Nothing else is asked twice: a write may be done without an answer.
// UNAVAILABLE if none takes it, DEADLINE_EXCEEDED after `patience`, RESOURCE_EXHAUSTED if the
// cluster's space is used up. In the first two cases it may have been done all the same, as may a
// transaction that is answered with unmet conditions: they may be what it did itself, at a member
// that did not say so.
class EtcdClient {
 public:
  // Without credentials in the clear.
  explicit EtcdClient(const EtcdPlace& place, absl::Duration patience = absl::Seconds(5),
                      std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr);

  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request);
  absl::Status Put(const etcdserverpb::PutRequest& request);
  absl::Status DeleteRange(const etcdserverpb::DeleteRangeRequest& request);
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request);

  // A lease that lasts so long, in whole seconds from `ttl` on, unless it is kept.
  absl::StatusOr<EtcdLease> GrantLease(absl::Duration ttl);
  // NOT_FOUND if it is over.
  absl::Status KeepLease(int64_t lease);
  absl::Status RevokeLease(int64_t lease);

  // Watches at the member that answered last.
  etcdserverpb::Watch::Stub& watches() { return *members_[present_].watch; }

 private:
  struct Member {
    std::string endpoint;
    std::unique_ptr<etcdserverpb::KV::Stub> kv;
    std::unique_ptr<etcdserverpb::Lease::Stub> lease;
    std::unique_ptr<etcdserverpb::Watch::Stub> watch;
  };
  struct Question;
  template <typename Call>
  absl::Status Try(const char* what, Call call);
  // Calls go to `to` from now on if they went to `from`.
  void Move(size_t from, size_t to);

  std::vector<Member> members_;
  const absl::Duration patience_;
  std::atomic<size_t> present_ = 0;  // The member that is asked first: it answered last.
};

}  // namespace stagewright
