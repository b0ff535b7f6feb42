#include "planner_service/access/access.h"

#include <sys/stat.h>

#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/text_file.h"

namespace stagewright {
namespace {

constexpr absl::string_view kScheme = "stagewright://";
constexpr absl::string_view kAnyName = "*";

// Changes with every change of the file.
std::string VersionOf(const std::string& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0) return "";
  return absl::StrCat(file.st_ino, " ", file.st_size, " ", file.st_mtim.tv_sec, " ",
                      file.st_mtim.tv_nsec);
}

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

Caller Everybody() { return {Role::kOperator, "", ""}; }

absl::StatusOr<std::unique_ptr<Access>> Access::Open(const Options& options) {
  std::unique_ptr<Access> access(new Access(options));
  if (!options.token_file.empty()) {
    absl::MutexLock lock(&access->mutex_);
    RETURN_IF_ERROR(access->Read());
  }
  return access;
}

absl::Status Access::Read() const {
  read_version_ = VersionOf(options_.token_file);
  auto text = ReadTextFile(options_.token_file);
  if (!text.ok())
    return absl::FailedPreconditionError(absl::StrCat("--token-file ", text.status().message()));
  auto tokens = TokenTable::Parse(*text);
  if (!tokens.ok())
    return Annotate(tokens.status(), absl::StrCat("--token-file ", options_.token_file));
  tokens_ = *std::move(tokens);
  return absl::OkStatus();
}

void Access::ReadIfChanged() const {
  if (VersionOf(options_.token_file) == read_version_) return;
  const absl::Status status = Read();
  if (!status.ok()) {
    std::cerr << "stagewright-planner: " << status.message()
              << "; the tokens known before stay valid" << std::endl;
  }
}

absl::StatusOr<Caller> Access::Identify(const Credentials& credentials) const {
  if (!required()) return Everybody();
  if (credentials.authorization.has_value() && !options_.token_file.empty()) {
    absl::string_view token = *credentials.authorization;
    if (!absl::ConsumePrefix(&token, "Bearer ")) {
      return absl::UnauthenticatedError("authorization: expected \"Bearer TOKEN\"");
    }
    absl::MutexLock lock(&mutex_);
    ReadIfChanged();
    std::optional<Caller> caller = tokens_.Find(absl::StripAsciiWhitespace(token));
    if (caller.has_value()) return *std::move(caller);
    return absl::UnauthenticatedError("the token is not known");
  }
  for (const std::string& uri : credentials.uris)
    if (std::optional<Caller> caller = CallerOfUri(uri)) return *std::move(caller);
  if (options_.token_file.empty()) {
    return absl::UnauthenticatedError(
        "the certificate does not say who you are: it needs the URI stagewright://ROLE/USER");
  }
  return absl::UnauthenticatedError(
      options_.certificates
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
