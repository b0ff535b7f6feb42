#include "planner_service/service/door.h"

#include <fcntl.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/channel/address.h"
#include "common/channel/credentials.h"
#include "common/log/log.h"
#include "planner_service/access/relayed_caller.h"
#include "planner_service/access/roles.h"
#include "planner_service/service/rpc.h"

namespace stagewright {
namespace {

using Metadata = grpc::AuthMetadataProcessor::InputMetadata;

std::optional<std::string> ValueOf(const Metadata& metadata, const char* name) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) return std::nullopt;
  return std::string(found->second.data(), found->second.size());
}

std::vector<std::string> UrisOf(const grpc::AuthContext* context) {
  std::vector<std::string> uris;
  if (context == nullptr || !context->IsPeerAuthenticated()) return uris;
  for (const grpc::string_ref& uri : context->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME))
    uris.emplace_back(uri.data(), uri.size());
  return uris;
}

// Who called, which is not who passed the call on. `peer` is the address that the call came from,
// empty where that is not known.
struct Origin {
  Credentials credentials;
  std::string peer;
  std::string certificate;  // The common name of the caller's, empty where it has none.
};

Origin OriginOf(const Metadata& metadata, const grpc::AuthContext* context, std::string peer) {
  Origin origin{{ValueOf(metadata, "authorization"), UrisOf(context)}, std::move(peer), ""};
  if (!IsPlanner(origin.credentials.uris)) {
    if (context != nullptr && context->IsPeerAuthenticated()) {
      for (const grpc::string_ref& name : context->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME))
        origin.certificate.assign(name.data(), name.size());
    }
    return origin;
  }
  origin.credentials.uris.clear();
  const auto [first, last] = metadata.equal_range(kCallerUri);
  for (auto it = first; it != last; ++it)
    origin.credentials.uris.emplace_back(it->second.data(), it->second.size());
  origin.peer = ValueOf(metadata, kCallerPeer).value_or("");
  return origin;
}

constexpr size_t kLongestAudited = 256;  // What callers say may be megabytes.
constexpr char kUnknownMethod[] = "unknown method";

struct AuditEntry {
  absl::StatusOr<Caller> caller;
  Origin origin;
  absl::string_view call, what;
  absl::Status outcome;
};

// Where the audit log goes. Thread-safe.
class AuditLog {
 public:
  ~AuditLog() {
    if (file_ >= 0) close(file_);
  }

  // To the program's log without a path, and nowhere without `wanted`, too.
  absl::Status Open(const std::string& path, bool wanted) {
    path_ = path;
    to_log_ = wanted || !path.empty();
    if (path.empty()) return absl::OkStatus();
    absl::MutexLock lock(&mutex_);
    if (OpenFile()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("--audit-log ", path, ": ", std::strerror(errno)));
  }

  // What the file does not take goes to the program's log.
  void Write(const AuditEntry& entry) {
    const auto cut = [](absl::string_view text) {
      return std::string(text.substr(0, kLongestAudited));
    };
    const bool ok = entry.outcome.ok(), known = entry.caller.ok();
    const std::string who = cut(known ? entry.caller->user : ""),
                      tenant = cut(known ? entry.caller->tenant : ""),
                      peer = cut(entry.origin.peer), certificate = cut(entry.origin.certificate),
                      call = cut(entry.call), what = cut(entry.what),
                      outcome = absl::StatusCodeToString(entry.outcome.code()),
                      why = cut(entry.outcome.message());
    if (!path_.empty()) {
      nlohmann::ordered_json line;
      line["time"] = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
      line["who"] = who;
      line["tenant"] = tenant;
      line["peer"] = peer;
      if (!certificate.empty()) line["certificate"] = certificate;
      line["call"] = call;
      line["what"] = what;
      line["outcome"] = outcome;
      if (!ok) line["why"] = why;
      if (Append(line.dump(-1, ' ', /*ensure_ascii=*/true,
                           nlohmann::ordered_json::error_handler_t::replace)))
        return;
    }
    if (!to_log_) return;
    // Whatever the level of the program's log: this is the only place that has it.
    const bool lost = !path_.empty();
    Log(lost ? LogLevel::kError
        : ok ? LogLevel::kInfo
             : LogLevel::kWarning,
        "audit",
        {{"who", who},
         {"tenant", tenant},
         {"peer", peer},
         {"certificate", certificate},
         {"call", call},
         {"what", what},
         {"outcome", outcome},
         {"why", why}});
  }

  int64_t failures() const { return failures_; }

 private:
  // Whether the file took it. One that did not is opened anew for the next line.
  bool Append(const std::string& line) {
    absl::MutexLock lock(&mutex_);
    const bool failed = !OpenFile() || !WriteAll(absl::StrCat(torn_ ? "\n" : "", line, "\n"));
    if (failed) {
      ++failures_;
      if (!failing_) {
        Log(LogLevel::kError, absl::StrCat("--audit-log ", path_, ": ", std::strerror(errno),
                                           "; what it does not take is in this log"));
      }
      if (file_ >= 0) close(std::exchange(file_, -1));
    } else if (failing_) {
      Log(LogLevel::kInfo, absl::StrCat("--audit-log ", path_, " can be written again"));
    }
    failing_ = failed;
    return !failed;
  }

  // These say by errno why not.
  bool OpenFile() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (file_ < 0) file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return file_ >= 0;
  }
  bool WriteAll(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (!text.empty()) {
      const ssize_t written = write(file_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      torn_ = text[static_cast<size_t>(written) - 1] != '\n';
      text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }

  std::string path_;  // Empty: no file.
  bool to_log_ = false;
  std::atomic<int64_t> failures_ = 0;
  absl::Mutex mutex_;
  int file_ ABSL_GUARDED_BY(mutex_) = -1;  // Its descriptor; -1: it is not open.
  bool failing_ ABSL_GUARDED_BY(mutex_) = false;
  bool torn_ ABSL_GUARDED_BY(mutex_) = false;  // A part of a line was written last.
};

// Asks before a call's request is read, on the thread that reads: it blocks for a look at a file at
// most.
class Processor : public grpc::AuthMetadataProcessor {
 public:
  Processor(const Access* access, AuditLog* audit) : access_(access), audit_(audit) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    std::string method = ValueOf(metadata, ":path").value_or("");
    if (!IsDecided(method)) method = kUnknownMethod;  // Callers' own words, of any length.
    // gRPC does not say here where a call comes from.
    const Origin origin = OriginOf(metadata, context, "");
    const absl::Status status = access_->Check(method, origin.credentials).status();
    if (!status.ok() && Changes(method)) {
      audit_->Write({access_->Identify(origin.credentials), origin, method, "", status});
    }
    return ToGrpc(status);
  }

 private:
  const Access* const access_;
  AuditLog* const audit_;
};

Access::Options AccessOf(const DoorOptions& options) {
  return {options.token_file, !options.tls.authorities.empty(), options.jwt};
}

bool HasTokens(const DoorOptions& options) {
  return !options.token_file.empty() || !options.jwt.keys_file.empty();
}

// TLS alone keeps nobody out.
absl::Status CheckEncrypted(absl::string_view flag, const std::string& listen,
                            const DoorOptions& options) {
  const bool asks = !options.tls.authorities.empty() || HasTokens(options);
  if (asks || options.insecure || IsLoopback(listen)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, " ", listen,
      ": other machines reach it, and nobody is asked who they are: give --tls-ca, --token-file "
      "or --jwt-keys, or --insecure to let whoever reaches it do everything"));
}

absl::Status CheckListening(absl::string_view flag, const std::string& listen,
                            const DoorOptions& options) {
  if (!options.tls.empty()) return CheckEncrypted(flag, listen, options);
  if (IsLoopback(listen)) return absl::OkStatus();
  if (!options.insecure) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", listen,
                     ": other machines reach it: give --tls-cert, --tls-key and --tls-ca "
                     "(scripts/dev-certs.sh makes some), or --insecure to let whoever reaches it "
                     "do everything"));
  }
  if (!HasTokens(options)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options.token_file.empty() ? "--jwt-keys" : "--token-file",
                   " with --insecure: tokens would travel in the clear; give --tls-cert and "
                   "--tls-key instead of --insecure"));
}

class OpenDoor : public Door {
 public:
  explicit OpenDoor(const DoorOptions& options) : options_(options) {}

  absl::Status Init(const std::string& listen, const std::string& worker_listen) {
    RETURN_IF_ERROR(CheckOptions(listen, worker_listen, options_));
    if (!options_.tls.empty())
      RETURN_IF_ERROR(CheckTlsFiles(options_.tls, /*need_certificate=*/true));
    loopback_ = IsLoopback(listen) && (worker_listen.empty() || IsLoopback(worker_listen));
    ASSIGN_OR_RETURN(access_, Access::Open(AccessOf(options_)));
    return audit_.Open(options_.audit_log, access_->required());
  }

  std::shared_ptr<grpc::ServerCredentials> credentials() override {
    std::shared_ptr<grpc::ServerCredentials> made;
    if (!options_.tls.empty()) {
      made = ListeningCredentials(options_.tls);
    } else if (access_->required()) {
      // What arrives from elsewhere is refused by these, whatever the port is bound to.
      made = grpc::experimental::LocalServerCredentials(LOCAL_TCP);
    } else {
      return grpc::InsecureServerCredentials();
    }
    made->SetAuthMetadataProcessor(std::make_shared<Processor>(access_.get(), &audit_));
    return made;
  }

  std::string description() const override {
    std::string text = "in the clear, for this machine only";
    if (!options_.tls.empty())
      text = options_.tls.authorities.empty() ? "TLS" : "TLS, clients show certificates";
    else if (!loopback_)
      text = "in the clear (--insecure)";
    if (!options_.token_file.empty()) text += ", tokens";
    if (!options_.jwt.keys_file.empty()) text += ", signed tokens";
    if (access_->required()) return text;
    return text + "; whoever reaches it may do everything";
  }

  absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context) const override {
    return access_->Identify(OriginOf(context).credentials);
  }

  absl::Status MayCall(const grpc::ServerContextBase& context,
                       absl::string_view method) const override {
    return access_->Check(method, OriginOf(context).credentials).status();
  }

  std::string PeerOf(const grpc::ServerContextBase& context) const override {
    return OriginOf(context).peer;
  }

  void Audit(const grpc::ServerContextBase& context, const absl::StatusOr<Caller>& caller,
             absl::string_view call, absl::string_view what, const absl::Status& outcome) override {
    audit_.Write({caller, OriginOf(context), call, what, outcome});
  }

  void Refresh() override { access_->Refresh(); }

  int64_t audit_failures() const override { return audit_.failures(); }

 private:
  static Origin OriginOf(const grpc::ServerContextBase& context) {
    return stagewright::OriginOf(context.client_metadata(), context.auth_context().get(),
                                 context.peer());
  }

  const DoorOptions options_;
  bool loopback_ = true;  // All addresses.
  std::unique_ptr<Access> access_;
  AuditLog audit_;
};

}  // namespace

absl::Status Door::CheckOptions(const std::string& listen, const std::string& worker_listen,
                                const DoorOptions& options) {
  if (!options.tls.empty()) RETURN_IF_ERROR(CheckTlsFlags(options.tls, /*need_certificate=*/true));
  RETURN_IF_ERROR(CheckListening("--listen", listen, options));
  if (!worker_listen.empty())
    RETURN_IF_ERROR(CheckListening("--worker-listen", worker_listen, options));
  return Access::CheckOptions(AccessOf(options));
}

std::string Door::ShareOf(const grpc::ServerContextBase& context) const {
  const auto caller = CallerOf(context);
  if (caller.ok() && !caller->user.empty()) return absl::StrCat(caller->tenant, "\n", caller->user);
  const std::string peer = PeerOf(context);
  return peer.empty() ? context.peer() : peer;
}

absl::StatusOr<std::unique_ptr<Door>> Door::Open(const std::string& listen,
                                                 const std::string& worker_listen,
                                                 const DoorOptions& options) {
  auto door = std::make_unique<OpenDoor>(options);
  RETURN_IF_ERROR(door->Init(listen, worker_listen));
  return std::unique_ptr<Door>(std::move(door));
}

}  // namespace stagewright
