// How clients and workers reach the planner: encrypted, or on this machine, or in the clear where
// that was asked for; with the token that says who they are.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/channel/tls_files.h"

namespace stagewright {

struct ChannelSecurity {
  TlsFiles tls;            // Anything given: TLS. Without authorities, those of the machine.
  std::string token_file;  // Its first line that is not blank is sent; read for every call.
  bool insecure = false;   // Speak in the clear, beyond this machine, too.
};

// INVALID_ARGUMENT: `address` is none (CheckTarget, as `flag`); errors of CheckTlsFlags; no TLS for
// an address beyond this machine without `insecure`, or a token that would go there in the clear:
// the message says what to do. Looks into no file.
absl::Status CheckChannel(absl::string_view flag, const std::string& address,
                          const ChannelSecurity& security);

// Connects with the first call; through a proxy of the environment (`https_proxy` and its like)
// only with TLS and to another machine. Errors of CheckChannel and CheckTlsFiles;
// FAILED_PRECONDITION names a token file that cannot be read, is empty, or has bytes that are not
// printable ASCII.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& address,
                                                           const ChannelSecurity& security,
                                                           const grpc::ChannelArguments& arguments);

}  // namespace stagewright
