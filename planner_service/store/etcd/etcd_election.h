// Which of several planners over one etcd is the leader: whoever's entry is there, for as long as
// its lease is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/store/etcd/etcd_client.h"

namespace stagewright {

// Which leadership a write is made under: a transaction with it fails as soon as another planner
// leads, or none.
struct FencingToken {
  std::string key;
  int64_t create_revision = 0;
};

// Thread-safe. Ends with the object, so that another planner need not wait for the lease.
class Leadership {
 public:
  virtual ~Leadership() = default;
  virtual FencingToken token() const = 0;
  // False once the lease was not kept in time or is over. By then nobody else leads yet, if clocks
  // run alike; whether or not they do, the token keeps writes out.
  virtual bool holds() const = 0;
};

struct ElectionState {
  std::unique_ptr<Leadership> won;  // Null: another planner leads.
  std::string leader;               // What it said of itself.
};

// Becomes the leader if there is none, and says `about` of itself. The lease lasts `ttl`.
absl::StatusOr<ElectionState> Campaign(std::shared_ptr<EtcdClient> client,
                                       const std::string& prefix, const std::string& about,
                                       absl::Duration ttl);

// The entry whose value is what the leader says of itself.
std::string LeaderKey(const std::string& prefix);

// What the leader said of itself; empty: there is none.
absl::StatusOr<std::string> LeaderOf(EtcdClient& client, const std::string& prefix);

}  // namespace stagewright
