#include "planner_service/access/access.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace stagewright {
namespace {

constexpr absl::string_view kScheme = "stagewright://";
constexpr absl::string_view kPlannerScheme = "stagewright://planner/";
constexpr absl::string_view kAnyName = "*";

std::optional<Caller> CallerOfUri(absl::string_view uri) {
  if (!absl::ConsumePrefix(&uri, kScheme)) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(uri, '/');
  if (parts.size() < 2 || parts.size() > 3 || parts[1].empty()) return std::nullopt;
  const std::optional<Role> role = RoleOf(parts[0]);
  if (!role.has_value()) return std::nullopt;
  return Caller{*role, std::string(parts[1]), parts.size() == 3 ? std::string(parts[2]) : ""};
}

std::string Describe(const Caller& caller) {
  return absl::StrCat("\"", caller.user, "\" is a ", RoleName(caller.role));
}

}  // namespace

bool IsPlanner(const std::vector<std::string>& uris) {
  return std::any_of(uris.begin(), uris.end(), [](absl::string_view uri) {
    return absl::ConsumePrefix(&uri, kPlannerScheme) && !uri.empty() &&
           !absl::StrContains(uri, '/');
  });
}

Caller Everybody() { return {Role::kOperator, "", ""}; }

absl::Status Access::CheckOptions(const Options& options) {
  const JwtOptions& jwt = options.jwt;
  if (!jwt.keys_file.empty()) return JwtClaims::Open(jwt).status();
  if (jwt.issuer.empty() && jwt.audience.empty() && jwt.role_values.empty())
    return absl::OkStatus();
  return absl::InvalidArgumentError("--jwt-issuer, --jwt-audience and --jwt-role need --jwt-keys");
}

absl::StatusOr<std::unique_ptr<Access>> Access::Open(const Options& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<Access> access(new Access(options.certificates));
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(access->tokens_, WatchedFile<TokenTable>::Open(
                                          "--token-file", options.token_file, &TokenTable::Parse));
  }
  if (!options.jwt.keys_file.empty()) {
    ASSIGN_OR_RETURN(access->jwt_, JwtReader::Open(options.jwt));
  }
  return access;
}

absl::StatusOr<Caller> Access::HolderOf(absl::string_view token) const {
  if (tokens_ != nullptr) {
    if (std::optional<Caller> caller = tokens_->Get()->Find(token)) return *std::move(caller);
  }
  if (jwt_ != nullptr) return jwt_->CallerOf(token, absl::Now());
  return absl::UnauthenticatedError("the token is not known");
}

void Access::Refresh() const {
  if (tokens_ != nullptr) tokens_->Get();
  if (jwt_ != nullptr) jwt_->Refresh();
}

absl::StatusOr<Caller> Access::Identify(const Credentials& credentials) const {
  if (!required()) return Everybody();
  if (credentials.authorization.has_value() && has_tokens()) {
    absl::string_view token = *credentials.authorization;
    if (!absl::ConsumePrefix(&token, "Bearer ")) {
      return absl::UnauthenticatedError("authorization: expected \"Bearer TOKEN\"");
    }
    return HolderOf(absl::StripAsciiWhitespace(token));
  }
  for (const std::string& uri : credentials.uris)
    if (std::optional<Caller> caller = CallerOfUri(uri)) return *std::move(caller);
  if (!has_tokens()) {
    return absl::UnauthenticatedError(
        "the certificate does not say who you are: it needs the URI stagewright://ROLE/USER");
  }
  return absl::UnauthenticatedError(
      certificates_
          ? "a token (--token-file) or a certificate with the URI stagewright://ROLE/USER is needed"
          : "a token is needed (--token-file)");
}

absl::StatusOr<Caller> Access::Check(absl::string_view method,
                                     const Credentials& credentials) const {
  const Role least = LeastRole(method);
  if (least == Role::kAnybody || !required()) return Everybody();
  ASSIGN_OR_RETURN(Caller caller, Identify(credentials));
  if (Covers(caller.role, least)) return caller;
  return absl::PermissionDeniedError(absl::StrCat(Describe(caller), "; ", method, " needs ",
                                                  least == Role::kOperator ? "an " : "a ",
                                                  RoleName(least)));
}

absl::Status MayChangeJob(const Caller& caller, absl::string_view job, absl::string_view owner,
                          absl::string_view tenant) {
  if (caller.role == Role::kOperator) return absl::OkStatus();
  if (caller.role == Role::kSubmitter && caller.user == owner && caller.tenant == tenant)
    return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(Describe(caller), ", and ", job, " is ",
                   owner.empty() ? "nobody's" : absl::StrCat("that of \"", owner, "\""),
                   ": only its owner and operators may change it"));
}

absl::Status MayRegister(const Caller& caller, absl::string_view worker) {
  // Where nobody has to say who they are, workers need not either.
  if (caller.role == Role::kOperator) return absl::OkStatus();
  if (caller.role == Role::kWorker && (caller.user == kAnyName || caller.user == worker))
    return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(Describe(caller), " and may not register as \"", worker, "\""));
}

}  // namespace stagewright
