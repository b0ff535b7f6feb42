// The two ends of TLS in gRPC, from the files that flags name.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "common/channel/tls_files.h"

namespace stagewright {

// Files are looked at again every kTlsRefresh, and those that have gone bad leave what they said
// before (kept_tls_files.h). In the clear without any. `flags` as in CheckTlsFiles.
std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const TlsFiles& tls,
                                                            absl::string_view flags = "--tls");
// The same for who listens; with authorities, callers must show certificates that they have signed.
std::shared_ptr<grpc::ServerCredentials> ListeningCredentials(const TlsFiles& tls);

}  // namespace stagewright
