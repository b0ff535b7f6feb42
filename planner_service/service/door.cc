#include "planner_service/service/door.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/channel/address.h"
#include "planner_service/service/rpc.h"

namespace stagewright {
namespace {

using Metadata = grpc::AuthMetadataProcessor::InputMetadata;

std::optional<std::string> ValueOf(const Metadata& metadata, const char* name) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) return std::nullopt;
  return std::string(found->second.data(), found->second.size());
}

Credentials CredentialsOf(const Metadata& metadata, const grpc::AuthContext* context) {
  Credentials credentials{ValueOf(metadata, "authorization"), {}};
  if (context == nullptr || !context->IsPeerAuthenticated()) return credentials;
  for (const grpc::string_ref& uri : context->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME))
    credentials.uris.emplace_back(uri.data(), uri.size());
  return credentials;
}

// The lines of the audit log. Thread-safe.
class AuditLog {
 public:
  // To standard error without a path, and nowhere without `wanted`, too.
  absl::Status Open(const std::string& path, bool wanted) {
    to_stderr_ = wanted;
    if (path.empty()) return absl::OkStatus();
    file_.open(path, std::ios::app);
    if (file_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("--audit-log ", path, ": ", std::strerror(errno)));
  }

  void Write(const nlohmann::ordered_json& line) {
    const std::string text =
        line.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
    absl::MutexLock lock(&mutex_);
    if (file_.is_open()) {
      file_ << text << std::endl;
    } else if (to_stderr_) {
      std::cerr << "stagewright-planner: audit " << text << std::endl;
    }
  }

 private:
  absl::Mutex mutex_;
  std::ofstream file_;
  bool to_stderr_ = false;
};

nlohmann::ordered_json AuditLine(const absl::StatusOr<Caller>& caller, const std::string& peer,
                                 absl::string_view call, absl::string_view what,
                                 const absl::Status& outcome) {
  nlohmann::ordered_json line;
  line["time"] = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
  line["who"] = caller.ok() ? caller->user : "";
  line["tenant"] = caller.ok() ? caller->tenant : "";
  line["peer"] = peer;
  line["call"] = std::string(call);
  line["what"] = std::string(what);
  line["outcome"] = absl::StatusCodeToString(outcome.code());
  if (!outcome.ok()) line["why"] = std::string(outcome.message());
  return line;
}

// Asks before a call's request is read, on the thread that reads: it blocks for a look at a file at
// most.
class Processor : public grpc::AuthMetadataProcessor {
 public:
  Processor(const Access* access, AuditLog* audit) : access_(access), audit_(audit) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const std::string method = ValueOf(metadata, ":path").value_or("");
    const Credentials credentials = CredentialsOf(metadata, context);
    const absl::Status status = access_->Check(method, credentials).status();
    if (!status.ok() && Changes(method)) {
      audit_->Write(AuditLine(access_->Identify(credentials), "", method, "", status));
    }
    return ToGrpc(status);
  }

 private:
  const Access* const access_;
  AuditLog* const audit_;
};

class OpenDoor : public Door {
 public:
  explicit OpenDoor(const DoorOptions& options) : options_(options) {}

  absl::Status Init(const std::string& listen) {
    loopback_ = IsLoopback(listen);
    RETURN_IF_ERROR(CheckOptions(listen));
    ASSIGN_OR_RETURN(access_,
                     Access::Open({options_.token_file, !options_.tls.authorities.empty()}));
    return audit_.Open(options_.audit_log, access_->required());
  }

  std::shared_ptr<grpc::ServerCredentials> credentials() override {
    std::shared_ptr<grpc::ServerCredentials> made;
    if (!options_.tls.empty()) {
      made = grpc::experimental::TlsServerCredentials(TlsOptions());
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
    if (!options_.token_file.empty()) return text + ", tokens";
    if (access_->required()) return text;
    return text + "; whoever reaches it may do everything";
  }

  absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context) const override {
    return access_->Identify(
        CredentialsOf(context.client_metadata(), context.auth_context().get()));
  }

  void Audit(const grpc::ServerContextBase& context, absl::string_view call, absl::string_view what,
             const absl::Status& outcome) override {
    audit_.Write(AuditLine(CallerOf(context), context.peer(), call, what, outcome));
  }

 private:
  absl::Status CheckOptions(const std::string& listen) const {
    if (!options_.tls.empty()) return CheckTlsFiles(options_.tls, /*need_certificate=*/true);
    if (loopback_) return absl::OkStatus();
    if (!options_.insecure) {
      return absl::InvalidArgumentError(
          absl::StrCat("--listen ", listen,
                       ": other machines reach it: give --tls-cert, --tls-key and --tls-ca "
                       "(scripts/dev-certs.sh makes some), or --insecure to let whoever reaches it "
                       "do everything"));
    }
    if (options_.token_file.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--token-file with --insecure: tokens would travel in the clear; give --tls-cert and "
        "--tls-key instead of --insecure");
  }

  grpc::experimental::TlsServerCredentialsOptions TlsOptions() const {
    const TlsFiles& tls = options_.tls;
    grpc::experimental::TlsServerCredentialsOptions made(
        std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
            tls.key, tls.certificate, tls.authorities,
            static_cast<unsigned int>(absl::ToInt64Seconds(kTlsRefresh))));
    made.watch_identity_key_cert_pairs();
    if (!tls.authorities.empty()) {
      made.watch_root_certs();
      made.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    }
    return made;
  }

  const DoorOptions options_;
  bool loopback_ = false;
  std::unique_ptr<Access> access_;
  AuditLog audit_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Door>> Door::Open(const std::string& listen,
                                                 const DoorOptions& options) {
  auto door = std::make_unique<OpenDoor>(options);
  RETURN_IF_ERROR(door->Init(listen));
  return std::unique_ptr<Door>(std::move(door));
}

}  // namespace stagewright
