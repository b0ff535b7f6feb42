#include "common/channel/tls_files.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace stagewright {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using File = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

absl::StatusOr<File> Open(absl::string_view flag, const std::string& path) {
  File file(BIO_new_file(path.c_str(), "r"));
  if (file == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(flag, " ", path, ": ", std::strerror(errno)));
  }
  return file;
}

absl::StatusOr<Certificate> ReadCertificate(absl::string_view flag, const std::string& path) {
  ASSIGN_OR_RETURN(const File file, Open(flag, path));
  Certificate certificate(PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr)
    return absl::FailedPreconditionError(absl::StrCat(flag, " ", path, ": no certificate in PEM"));
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0)
    return absl::FailedPreconditionError(absl::StrCat(flag, " ", path, ": it has expired"));
  return certificate;
}

// Nobody is asked for a password.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*unused*/) { return -1; }

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files, bool need_certificate) {
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(files.key.empty() ? "--tls-cert needs --tls-key"
                                                        : "--tls-key needs --tls-cert");
  }
  if (need_certificate && files.certificate.empty())
    return absl::InvalidArgumentError("--tls-ca needs --tls-cert and --tls-key");
  if (!files.authorities.empty())
    RETURN_IF_ERROR(ReadCertificate("--tls-ca", files.authorities).status());
  if (files.certificate.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate("--tls-cert", files.certificate));
  ASSIGN_OR_RETURN(const File file, Open("--tls-key", files.key));
  const Key key(PEM_read_bio_PrivateKey(file.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("--tls-key ", files.key, ": no key in PEM without a password"));
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--tls-key ", files.key, ": it is not the key of --tls-cert ", files.certificate));
  }
  return absl::OkStatus();
}

}  // namespace stagewright
