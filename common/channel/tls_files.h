// The files of TLS, in PEM.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status.h"

namespace stagewright {

// Empty: not given.
struct TlsFiles {
  std::string certificate;  // Its own, and what leads to an authority that others know.
  std::string key;          // The certificate's; without a password.
  std::string authorities;  // Signers of the certificates that are believed.

  bool empty() const { return certificate.empty() && key.empty() && authorities.empty(); }
};

// Files are looked at so often: new ones hold for connections that are made from then on.
constexpr absl::Duration kTlsRefresh = absl::Seconds(5);

// INVALID_ARGUMENT names the flag, unless certificate and key are given both or neither, and, with
// `need_certificate`, both. `flags` is what the flags begin with. Looks into no file.
absl::Status CheckTlsFlags(const TlsFiles& files, bool need_certificate,
                           absl::string_view flags = "--tls");

// Errors of CheckTlsFlags; FAILED_PRECONDITION names the file that cannot be read, holds no
// certificate or key, has expired (of several authorities, all of them), or is not the
// certificate's key.
absl::Status CheckTlsFiles(const TlsFiles& files, bool need_certificate,
                           absl::string_view flags = "--tls");

// The URIs that a certificate carries; none if the file has no certificate.
std::vector<std::string> UrisOfCertificate(const std::string& path);

}  // namespace stagewright
