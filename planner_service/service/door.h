// Who comes in: the credentials of the listening port, the check of every call before its request
// is read, and the audit log of what callers changed.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/channel/tls_files.h"
#include "planner_service/access/access.h"

namespace stagewright {

struct DoorOptions {
  TlsFiles tls;  // With authorities, clients must show certificates that they have signed.
  std::string token_file;  // planner_service/access/token_table.h; empty: no tokens.
  JwtOptions jwt;          // planner_service/access/jwt.h; without a file of keys: no such tokens.
  // Listen where other machines reach it in the clear, or with TLS to callers that say nothing.
  bool insecure = false;
  // File that gets the audit log; empty: standard error where callers must say who they are, and
  // nowhere else.
  std::string audit_log;
};

// Thread-safe.
class Door {
 public:
  // INVALID_ARGUMENT: an address that other machines reach, without `insecure` and either without
  // TLS or where nobody must say who they are, or tokens that would travel there in the clear; says
  // what to do. Errors of CheckTlsFlags and Access::CheckOptions. Looks into no file.
  // `worker_listen` is the address of workers, empty where they come in at `listen`.
  static absl::Status CheckOptions(const std::string& listen, const std::string& worker_listen,
                                   const DoorOptions& options);
  // Errors of CheckOptions, CheckTlsFiles and Access::Open; FAILED_PRECONDITION names an audit log
  // that cannot be written.
  static absl::StatusOr<std::unique_ptr<Door>> Open(const std::string& listen,
                                                    const std::string& worker_listen,
                                                    const DoorOptions& options);
  virtual ~Door() = default;

  // For the listening ports, with the check of all calls (roles.h) in them. The door outlives it.
  virtual std::shared_ptr<grpc::ServerCredentials> credentials() = 0;
  // For people: what protects the port.
  virtual std::string description() const = 0;

  // Who makes a call that was let in. UNAUTHENTICATED if that has changed since.
  virtual absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context) const = 0;
  // The address of who called, which is not that of a planner who passed the call on; empty if that
  // one did not say it.
  virtual std::string PeerOf(const grpc::ServerContextBase& context) const = 0;
  // The same for all calls that share what one caller may have of something: those of a user, or of
  // a connection where nobody says who they are (of the follower that passed it on, unless it shows
  // a planner's certificate).
  std::string ShareOf(const grpc::ServerContextBase& context) const;
  // One line: who called what, on what, and what became of it.
  virtual void Audit(const grpc::ServerContextBase& context, const absl::StatusOr<Caller>& caller,
                     absl::string_view call, absl::string_view what,
                     const absl::Status& outcome) = 0;
  // The same for a call that ends as it begins: the credentials of a longer one may expire.
  void Audit(const grpc::ServerContextBase& context, absl::string_view call, absl::string_view what,
             const absl::Status& outcome) {
    Audit(context, CallerOf(context), call, what, outcome);
  }
  // Whether who makes a call at a port without these credentials may: errors of Access::Check.
  virtual absl::Status MayCall(const grpc::ServerContextBase& context,
                               absl::string_view method) const = 0;
  // Reads files that have changed now, though nobody calls: later they may have gone bad.
  virtual void Refresh() = 0;
  // Lines that the file of the audit log did not take; they are in the program's log.
  virtual int64_t audit_failures() const = 0;
};

}  // namespace stagewright
