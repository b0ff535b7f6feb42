#include "common/channel/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/client_interceptor.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/base/regular_file.h"
#include "common/base/text_file.h"
#include "common/channel/address.h"
#include "common/channel/credentials.h"

namespace stagewright {
namespace {

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  const auto text = ReadSmallFile(path, kLargestTextFile);
  if (!text.ok())
    return absl::FailedPreconditionError(absl::StrCat("--token-file ", text.status().message()));
  const absl::string_view told = absl::StripAsciiWhitespace(WithoutByteOrderMark(*text));
  const std::string token(absl::StripAsciiWhitespace(told.substr(0, told.find('\n'))));
  if (token.empty())
    return absl::FailedPreconditionError(absl::StrCat("--token-file ", path, ": it is empty"));
  // gRPC ends the process that sends others in a header.
  if (!std::all_of(token.begin(), token.end(), absl::ascii_isprint)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--token-file ", path, ": its first line has bytes that are not printable ASCII"));
  }
  return token;
}

// Adds the token to each call.
class TokenInterceptor : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string& path) : path_(path) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Points = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Points::PRE_SEND_INITIAL_METADATA)) {
      // A file that has gone bad since leaves the call without: the planner then says so.
      const auto token = ReadToken(path_);
      if (token.ok())
        methods->GetSendInitialMetadata()->emplace("authorization", "Bearer " + *token);
    }
    methods->Proceed();
  }

 private:
  const std::string& path_;
};

class TokenInterceptors : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenInterceptors(std::string path) : path_(std::move(path)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new TokenInterceptor(path_);
  }

 private:
  const std::string path_;
};

}  // namespace

absl::Status CheckChannel(absl::string_view flag, const std::string& address,
                          const ChannelSecurity& security) {
  RETURN_IF_ERROR(CheckTarget(flag, address));
  if (!security.tls.empty()) return CheckTlsFlags(security.tls, /*need_certificate=*/false);
  if (IsLoopback(address)) return absl::OkStatus();
  if (!security.insecure) {
    return absl::InvalidArgumentError(
        absl::StrCat("the planner at ", address,
                     " is on another machine: give --tls-ca (and --tls-cert, --tls-key), or "
                     "--insecure to speak to it in the clear"));
  }
  if (!security.token_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--token-file with --insecure: everybody on the way to ", address,
                     " could read the token; give --tls-ca instead of --insecure"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(
    const std::string& address, const ChannelSecurity& security,
    const grpc::ChannelArguments& arguments) {
  RETURN_IF_ERROR(CheckChannel("planner", address, security));
  if (!security.tls.empty())
    RETURN_IF_ERROR(CheckTlsFiles(security.tls, /*need_certificate=*/false));
  grpc::ChannelArguments own = arguments;
  // A proxy of the environment (http_proxy) would read what is not encrypted, tokens to a planner
  // of this machine among it.
  if (security.tls.empty() || IsLoopback(address)) own.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!security.token_file.empty()) {
    RETURN_IF_ERROR(ReadToken(security.token_file).status());
    interceptors.push_back(std::make_unique<TokenInterceptors>(security.token_file));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      address, ClientCredentials(security.tls), own, std::move(interceptors));
}

}  // namespace stagewright
