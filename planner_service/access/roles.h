// What callers may do, by role.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace stagewright {

enum class Role {
  kAnybody,    // Without saying who: only whether the planner lives.
  kViewer,     // Reads jobs, workers, measurements.
  kSubmitter,  // Also plans, submits jobs, and ends and re-plans its own.
  kOperator,   // Also everybody's jobs, and what all share.
  kWorker,     // Takes part in jobs, and nothing else.
};

// "viewer", "submitter", "operator", "worker".
absl::string_view RoleName(Role role);
// Nothing for other names.
std::optional<Role> RoleOf(absl::string_view name);

// Whether a caller of role `has` may do what needs `least`.
bool Covers(Role has, Role least);

// The least role for an RPC, "/stagewright.v1.JobService/GetJob". What is not in the table is for
// operators.
Role LeastRole(absl::string_view method);
bool IsDecided(absl::string_view method);

// Whether a service, "stagewright.v1.WorkerService", is for workers only: those come in where
// workers do, all others where clients do.
bool IsForWorkers(absl::string_view service);

// Whether the RPC changes something that outlasts the call: those are written to the audit log.
bool Changes(absl::string_view method);

}  // namespace stagewright
