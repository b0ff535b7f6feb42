// Who calls, and whether they may.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/access/token_table.h"

namespace stagewright {

// What a call says about its caller.
struct Credentials {
  std::optional<std::string> authorization;  // "Bearer TOKEN".
  // URIs that the caller's certificate carries, which an authority that we believe has signed:
  // stagewright://ROLE/USER or stagewright://ROLE/USER/TENANT.
  std::vector<std::string> uris;
};

// Thread-safe.
class Access {
 public:
  struct Options {
    std::string token_file;     // Empty: no tokens are known.
    bool certificates = false;  // Clients show certificates.
  };
  // FAILED_PRECONDITION: the file cannot be read; INVALID_ARGUMENT names file and line.
  static absl::StatusOr<std::unique_ptr<Access>> Open(const Options& options);

  // Whether callers must say who they are; otherwise everybody may do everything.
  bool required() const { return !options_.token_file.empty() || options_.certificates; }

  // Who calls: by token if there is one, else by certificate. UNAUTHENTICATED says what is missing.
  // A file of tokens that has changed is read again; a wrong one is said once, and the tokens that
  // were known stay.
  absl::StatusOr<Caller> Identify(const Credentials& credentials) const;

  // Identify, and PERMISSION_DENIED, naming user, role and the role that is needed, unless they may
  // call the RPC.
  absl::StatusOr<Caller> Check(absl::string_view method, const Credentials& credentials) const;

 private:
  explicit Access(Options options) : options_(std::move(options)) {}
  absl::Status Read() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadIfChanged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  mutable TokenTable tokens_ ABSL_GUARDED_BY(mutex_);
  mutable std::string read_version_ ABSL_GUARDED_BY(mutex_);  // What stat says of the file.
};

// PERMISSION_DENIED unless the job is the caller's own or the caller an operator.
absl::Status MayChangeJob(const Caller& caller, absl::string_view job, absl::string_view owner,
                          absl::string_view tenant);
// PERMISSION_DENIED unless the caller is the worker of that name.
absl::Status MayRegister(const Caller& caller, absl::string_view worker);

// One who may do everything: where nobody has to say who they are.
Caller Everybody();

}  // namespace stagewright
