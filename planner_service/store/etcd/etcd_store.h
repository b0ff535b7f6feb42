// A store in an etcd cluster, below a prefix.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "planner_service/store/etcd/etcd_client.h"
#include "planner_service/store/etcd/etcd_election.h"
#include "planner_service/store/store.h"

namespace stagewright {

// Values larger than what a request of etcd may have are kept in pieces. A batch may have some ten
// thousand mutations; INVALID_ARGUMENT if its keys alone are too large for a request. With a token,
// writes are FAILED_PRECONDITION once its leadership is over. Writes to one key by several stores
// at once are ordered, none is lost. Pieces that a killed process left are removed when a store
// with a token is opened.
absl::StatusOr<std::unique_ptr<Store>> OpenEtcdStore(std::shared_ptr<EtcdClient> client,
                                                     const std::string& prefix,
                                                     std::optional<FencingToken> token);

}  // namespace stagewright
