// The two ends of TLS in gRPC, from the files that flags name.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "common/channel/tls_files.h"

namespace stagewright {

// Files are looked at again every kTlsRefresh. In the clear without any.
std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const TlsFiles& tls);
// The same for who listens; with authorities, callers must show certificates that they have signed.
std::shared_ptr<grpc::ServerCredentials> ListeningCredentials(const TlsFiles& tls);

}  // namespace stagewright
