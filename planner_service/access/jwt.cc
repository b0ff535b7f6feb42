#include "planner_service/access/jwt.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_split.h"
#include "common/base/one_line.h"
#include "planner_service/access/jwt_text.h"

namespace stagewright {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestToken = 8192;
constexpr size_t kLongestName = 128;

absl::Status Unknown() { return absl::UnauthenticatedError("the token is not known"); }

absl::Status Wrong(absl::string_view what) {
  return absl::UnauthenticatedError(absl::StrCat("the token ", what));
}

// Seconds since 1970; nothing if the claim is no such number.
std::optional<double> TimeOf(const Json& claims, const char* name) {
  const auto found = claims.find(name);
  if (found == claims.end() || !found->is_number()) return std::nullopt;
  const double seconds = found->get<double>();
  return std::isfinite(seconds) ? std::optional(seconds) : std::nullopt;
}

absl::Status CheckTimes(const Json& claims, absl::Time now) {
  const double seconds = absl::ToDoubleSeconds(now - absl::UnixEpoch());
  const double leeway = absl::ToDoubleSeconds(kJwtLeeway);
  const std::optional<double> end = TimeOf(claims, "exp");
  if (!end.has_value()) return Wrong("does not say when it expires (exp)");
  if (*end + leeway <= seconds) return Wrong("has expired");
  if (!claims.contains("nbf")) return absl::OkStatus();
  const std::optional<double> start = TimeOf(claims, "nbf");
  if (!start.has_value() || *start - leeway > seconds) return Wrong("is not valid yet (nbf)");
  return absl::OkStatus();
}

// A text, or a list that has it.
bool Names(const Json* claim, absl::string_view text) {
  if (claim == nullptr) return false;
  if (claim->is_string()) return claim->get_ref<const std::string&>() == text;
  return claim->is_array() && std::any_of(claim->begin(), claim->end(), [&](const Json& one) {
           return one.is_string() && one.get_ref<const std::string&>() == text;
         });
}

// By its name, or by the path that a name with dots may be.
const Json* ClaimOf(const Json& claims, const std::string& name) {
  const auto found = claims.find(name);
  if (found != claims.end()) return &*found;
  const Json* claim = &claims;
  for (absl::string_view part : absl::StrSplit(name, '.')) {
    if (!claim->is_object()) return nullptr;
    const auto inner = claim->find(std::string(part));
    if (inner == claim->end()) return nullptr;
    claim = &*inner;
  }
  return claim;
}

// What a user or a tenant may be called.
bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && name != "*" && !HasControlCharacter(name);
}

}  // namespace

absl::StatusOr<JwtClaims> JwtClaims::Open(const JwtOptions& options) {
  if (options.issuer.empty()) return absl::InvalidArgumentError("--jwt-keys needs --jwt-issuer");
  if (options.audience.empty())
    return absl::InvalidArgumentError("--jwt-keys needs --jwt-audience");
  if (options.roles_claim.empty()) return absl::InvalidArgumentError("--jwt-roles-claim is empty");
  JwtClaims claims(options);
  for (const std::string& pair : options.role_values) {
    const size_t equals = pair.rfind('=');
    const std::optional<Role> role = equals == std::string::npos
                                         ? std::nullopt
                                         : RoleOf(absl::string_view(pair).substr(equals + 1));
    if (!role.has_value() || equals == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--jwt-role \"", pair,
          "\": expected VALUE=ROLE with a role of viewer, submitter, operator, worker"));
    }
    claims.roles_.emplace_back(pair.substr(0, equals), *role);
  }
  if (claims.roles_.empty()) {
    for (Role role : {Role::kViewer, Role::kSubmitter, Role::kOperator, Role::kWorker})
      claims.roles_.emplace_back(RoleName(role), role);
  }
  return claims;
}

Role JwtClaims::RoleOfClaims(const Json& claims) const {
  const Json* listed = ClaimOf(claims, options_.roles_claim);
  Role highest = Role::kAnybody;
  bool worker = false;
  for (const auto& [value, role] : roles_) {
    if (!Names(listed, value)) continue;
    worker |= role == Role::kWorker;
    if (role != Role::kWorker) highest = std::max(highest, role);
  }
  return highest == Role::kAnybody && worker ? Role::kWorker : highest;
}

absl::StatusOr<Caller> JwtClaims::CallerOf(absl::string_view text, absl::Time now) const {
  const auto claims = ParseUniqueObject(text, "claims");
  if (!claims.ok()) return Wrong("has claims that are no JSON object, or one twice");
  RETURN_IF_ERROR(CheckTimes(*claims, now));
  if (TextOf(*claims, "iss") != options_.issuer) return Wrong("is of another issuer (iss)");
  const auto audience = claims->find("aud");
  if (!Names(audience == claims->end() ? nullptr : &*audience, options_.audience))
    return Wrong("is for another audience (aud)");
  const std::string user = TextOf(*claims, "sub").value_or("");
  if (!IsName(user)) return Wrong("does not say whose it is (sub)");
  const Role role = RoleOfClaims(*claims);
  if (role == Role::kAnybody) {
    return absl::PermissionDeniedError(
        absl::StrCat("\"", user, "\" has no role here: the token's roles claim gives none"));
  }
  const std::string& naming = options_.tenant_claim;
  const Json* tenant = naming.empty() ? nullptr : ClaimOf(*claims, naming);
  if (tenant == nullptr) {
    if (naming.empty() || role == Role::kWorker) return Caller{role, user, ""};
    return Wrong(absl::StrCat("does not name its user's tenant (", naming, ")"));
  }
  if (!tenant->is_string() || !IsName(tenant->get_ref<const std::string&>()))
    return Wrong("has a tenant that is no name");
  return Caller{role, user, tenant->get<std::string>()};
}

absl::StatusOr<std::string> SignedClaims(absl::string_view token, const JwkSet& keys) {
  if (token.size() > kLongestToken) return Unknown();
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  if (parts.size() != 3) return Unknown();
  const auto header = DecodeBase64Url(parts[0]), signature = DecodeBase64Url(parts[2]);
  auto claims = DecodeBase64Url(parts[1]);
  if (!header.has_value() || !claims.has_value() || !signature.has_value()) return Unknown();
  const auto fields = ParseUniqueObject(*header, "header");
  // "crit" names extensions without which the token means something else; there are none here.
  if (!fields.ok() || fields->contains("crit")) return Unknown();
  const std::optional<std::string> algorithm = TextOf(*fields, "alg"), kid = TextOf(*fields, "kid");
  if (!algorithm.has_value() || kid.has_value() != fields->contains("kid")) return Unknown();
  const absl::string_view text = token.substr(0, parts[0].size() + 1 + parts[1].size());
  if (!keys.Verifies(*algorithm, kid, text, *signature)) return Unknown();
  return *std::move(claims);
}

absl::StatusOr<std::unique_ptr<JwtReader>> JwtReader::Open(const JwtOptions& options) {
  ASSIGN_OR_RETURN(JwtClaims claims, JwtClaims::Open(options));
  ASSIGN_OR_RETURN(auto keys,
                   WatchedFile<JwkSet>::Open("--jwt-keys", options.keys_file, &JwkSet::Parse));
  return std::unique_ptr<JwtReader>(new JwtReader(std::move(claims), std::move(keys)));
}

absl::StatusOr<Caller> JwtReader::CallerOf(absl::string_view token, absl::Time now) const {
  ASSIGN_OR_RETURN(const std::string claims, SignedClaims(token, *keys_->Get()));
  return claims_.CallerOf(claims, now);
}

}  // namespace stagewright
