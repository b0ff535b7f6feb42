// A planner that keeps its state in etcd, beside others: whichever of them is elected leads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/service/server.h"

namespace stagewright {

struct ElectionOptions {
  std::string store;      // "etcd://...".
  std::string advertise;  // Where the others reach this planner; empty: where it listens.
  // A leader that is silent for longer is followed by another.
  absl::Duration lease = absl::Seconds(5);
  std::function<void(const std::string&)> log;  // Called when the role changes.
};

// Follows until it is elected, leads until it loses its lease, and then follows again, all on one
// address. `options` say how it leads; its state is not used. Errors of EtcdPlace, of etcd, and of
// PlannerServer::Start; INVALID_ARGUMENT with TLS, which planners do not speak to each other.
absl::StatusOr<std::unique_ptr<PlannerServer>> StartElected(const ServerOptions& options,
                                                            const ElectionOptions& election);

}  // namespace stagewright
