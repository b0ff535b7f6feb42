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
  std::string store;              // "etcd://...".
  std::string advertise;          // Where the others reach this planner; empty: where it listens.
  std::string advertise_workers;  // The same of where workers come in, if that is another address.
  // With TLS for callers: whose the other planners' certificates are; empty: those of callers'.
  std::string peer_authorities;
  TlsFiles etcd;               // Empty: in the clear.
  bool etcd_insecure = false;  // Also where it is on another machine.
  // A leader that is silent for longer is followed by another.
  absl::Duration lease = absl::Seconds(5);
  std::function<void(const std::string&)> log;  // Called when the role changes.
};

// INVALID_ARGUMENT names the flag where planners could not reach or believe each other, or
// something secret would travel in the clear; errors of ParseEtcdPlace, CheckTlsFlags and of
// CheckOptions of server.h. Looks at the options alone, and at nothing that they name.
absl::Status CheckOptions(const ServerOptions& options, const ElectionOptions& election);

// Follows until it is elected, leads until it loses its lease, and then follows again, all on the
// same addresses. `options` say how it leads; its state is not used. With TLS for callers, planners
// speak it with each other: each shows its certificate, and where callers show theirs, that of a
// planner (planner_service/access/access.h) is believed who called it. Errors of CheckOptions, of
// etcd, of CheckTlsFiles, and of PlannerServer::Start; INVALID_ARGUMENT where the certificate is
// not a planner's.
absl::StatusOr<std::unique_ptr<PlannerServer>> StartElected(const ServerOptions& options,
                                                            const ElectionOptions& election);

}  // namespace stagewright
