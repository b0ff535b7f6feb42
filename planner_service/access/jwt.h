// Tokens that an identity provider has signed (JSON Web Tokens, RFC 7519), and whose they are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/access/jwk_set.h"
#include "planner_service/access/token_table.h"
#include "planner_service/access/watched_file.h"

namespace stagewright {

struct JwtOptions {
  std::string keys_file;  // A JSON Web Key Set; empty: no such tokens are known.
  std::string issuer;     // What "iss" must be.
  std::string audience;   // What "aud" must be or name.
  // The claim that lists what a caller may be: its name, or a path to it with dots.
  std::string roles_claim = "roles";
  // The claim that names the user's tenant; empty: users have none.
  std::string tenant_claim;
  // VALUE=ROLE; none: the values are the roles' names.
  std::vector<std::string> role_values;
};

// How far the provider's clock may be from ours.
constexpr absl::Duration kJwtLeeway = absl::Seconds(60);

// What callers are by the claims of a token that is known to be genuine: "sub" is the user, the
// highest role that the roles claim has is the role; worker only where it has no other. Where a
// claim names tenants, all but workers' tokens must have it: who has no tenant is in no tenant's
// quota.
class JwtClaims {
 public:
  // INVALID_ARGUMENT names the flag: no issuer or audience, a value of --jwt-role that is none.
  static absl::StatusOr<JwtClaims> Open(const JwtOptions& options);

  // UNAUTHENTICATED says which claim is wrong and never what was expected; PERMISSION_DENIED if the
  // token gives its holder no role.
  absl::StatusOr<Caller> CallerOf(absl::string_view claims, absl::Time now) const;

 private:
  explicit JwtClaims(JwtOptions options) : options_(std::move(options)) {}
  Role RoleOfClaims(const nlohmann::json& claims) const;

  JwtOptions options_;
  std::vector<std::pair<std::string, Role>> roles_;  // By value.
};

// Thread-safe.
class JwtReader {
 public:
  // Errors of JwtClaims::Open; those of the file of keys, beginning with --jwt-keys and its path.
  static absl::StatusOr<std::unique_ptr<JwtReader>> Open(const JwtOptions& options);

  // UNAUTHENTICATED with one message for every token that is damaged or not signed by one of the
  // keys, and as JwtClaims says. A file of keys that has changed is read again.
  absl::StatusOr<Caller> CallerOf(absl::string_view token, absl::Time now) const;
  // Reads such a file now.
  void Refresh() const { keys_->Get(); }

 private:
  JwtReader(JwtClaims claims, std::unique_ptr<WatchedFile<JwkSet>> keys)
      : claims_(std::move(claims)), keys_(std::move(keys)) {}

  const JwtClaims claims_;
  const std::unique_ptr<WatchedFile<JwkSet>> keys_;
};

// The claims of a token that one of the keys has signed, as they stand there; UNAUTHENTICATED for
// every other text.
absl::StatusOr<std::string> SignedClaims(absl::string_view token, const JwkSet& keys);

}  // namespace stagewright
