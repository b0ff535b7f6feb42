#include "common/channel/credentials.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "common/channel/kept_tls_files.h"

namespace stagewright {
namespace {

constexpr unsigned kSecondsBetweenLooks = 1;  // At the copies; a second is the least.

// gRPC serves nobody with files that have gone bad: it is shown good ones only.
std::shared_ptr<grpc::experimental::CertificateProviderInterface> Provider(
    const TlsFiles& tls, absl::string_view flags) {
  const TlsFiles kept = KeptTlsFiles(tls, flags);
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      kept.key, kept.certificate, kept.authorities, kSecondsBetweenLooks);
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const TlsFiles& tls,
                                                            absl::string_view flags) {
  if (tls.empty()) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Provider(tls, flags));
  if (!tls.authorities.empty()) options.watch_root_certs();
  if (!tls.certificate.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> ListeningCredentials(const TlsFiles& tls) {
  if (tls.empty()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(Provider(tls, "--tls"));
  options.watch_identity_key_cert_pairs();
  if (!tls.authorities.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace stagewright
