// Who calls, and whether they may.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "planner_service/access/jwt.h"
#include "planner_service/access/token_table.h"
#include "planner_service/access/watched_file.h"

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
    JwtOptions jwt;             // Tokens that an identity provider has signed.
  };
  // INVALID_ARGUMENT names the flag of a signed token's that is wrong or missing. Looks into no
  // file.
  static absl::Status CheckOptions(const Options& options);
  // Errors of CheckOptions; FAILED_PRECONDITION: a file cannot be read; INVALID_ARGUMENT names file
  // and line.
  static absl::StatusOr<std::unique_ptr<Access>> Open(const Options& options);

  // Whether callers must say who they are; otherwise everybody may do everything.
  bool required() const { return has_tokens() || certificates_; }

  // Who calls: by token if there is one, else by certificate. UNAUTHENTICATED says what is missing.
  // A file of tokens or keys that has changed is read again; a wrong one is said once, and what it
  // said before stays valid.
  absl::StatusOr<Caller> Identify(const Credentials& credentials) const;

  // Reads files that have changed, as Identify does.
  void Refresh() const;

  // Identify, and PERMISSION_DENIED, naming user, role and the role that is needed, unless they may
  // call the RPC.
  absl::StatusOr<Caller> Check(absl::string_view method, const Credentials& credentials) const;

 private:
  explicit Access(bool certificates) : certificates_(certificates) {}
  bool has_tokens() const { return tokens_ != nullptr || jwt_ != nullptr; }
  absl::StatusOr<Caller> HolderOf(absl::string_view token) const;

  const bool certificates_;
  std::unique_ptr<WatchedFile<TokenTable>> tokens_;  // Null: none are known.
  std::unique_ptr<JwtReader> jwt_;                   // The same.
};

// PERMISSION_DENIED unless the job is the caller's own or the caller an operator.
absl::Status MayChangeJob(const Caller& caller, absl::string_view job, absl::string_view owner,
                          absl::string_view tenant);
// PERMISSION_DENIED unless the caller is the worker of that name.
absl::Status MayRegister(const Caller& caller, absl::string_view worker);

// Whether a certificate with these URIs is a planner's, stagewright://planner/NAME: planners pass
// on what others call, and are believed who that is.
bool IsPlanner(const std::vector<std::string>& uris);

// One who may do everything: where nobody has to say who they are.
Caller Everybody();

}  // namespace stagewright
