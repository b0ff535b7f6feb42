#include "common/channel/tls_files.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

#include "common/base/check.h"
#include "common/base/regular_file.h"
#include "common/base/text_file.h"

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

// Read whole: OpenSSL would wait for who writes to a FIFO, and take a mark in front of the first
// line for a part of it.
absl::StatusOr<File> Open(absl::string_view flag, const std::string& path) {
  const auto text = ReadSmallFile(path, kLargestTextFile);
  if (!text.ok())
    return absl::FailedPreconditionError(absl::StrCat(flag, " ", text.status().message()));
  const absl::string_view pem = WithoutByteOrderMark(*text);
  File file(BIO_new(BIO_s_mem()));
  CHECK(file != nullptr && BIO_write(file.get(), pem.data(), static_cast<int>(pem.size())) ==
                               static_cast<int>(pem.size()));
  BIO_set_mem_eof_return(file.get(), 0);
  return file;
}

Certificate NextCertificate(const File& file) {
  return Certificate(PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
}

bool HasExpired(const Certificate& certificate) {
  return X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0;
}

absl::Status Wrong(absl::string_view flag, const std::string& path, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(flag, " ", path, ": ", what));
}

absl::StatusOr<Certificate> ReadCertificate(absl::string_view flag, const std::string& path) {
  ASSIGN_OR_RETURN(const File file, Open(flag, path));
  Certificate certificate = NextCertificate(file);
  if (certificate == nullptr) return Wrong(flag, path, "no certificate in PEM");
  if (HasExpired(certificate)) return Wrong(flag, path, "it has expired");
  return certificate;
}

// One that holds suffices: a bundle has an old one beside the new one for a while.
absl::Status CheckAuthorities(absl::string_view flag, const std::string& path) {
  ASSIGN_OR_RETURN(const File file, Open(flag, path));
  Certificate certificate = NextCertificate(file);
  if (certificate == nullptr) return Wrong(flag, path, "no certificate in PEM");
  for (; certificate != nullptr; certificate = NextCertificate(file))
    if (!HasExpired(certificate)) return absl::OkStatus();
  return Wrong(flag, path, "all certificates in it have expired");
}

// Nobody is asked for a password.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*unused*/) { return -1; }

}  // namespace

absl::Status CheckTlsFlags(const TlsFiles& files, bool need_certificate, absl::string_view flags) {
  const std::string certificate_flag = absl::StrCat(flags, "-cert"),
                    key_flag = absl::StrCat(flags, "-key");
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(files.key.empty()
                                          ? absl::StrCat(certificate_flag, " needs ", key_flag)
                                          : absl::StrCat(key_flag, " needs ", certificate_flag));
  }
  if (need_certificate && files.certificate.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags, "-ca needs ", certificate_flag, " and ", key_flag));
  }
  return absl::OkStatus();
}

absl::Status CheckTlsFiles(const TlsFiles& files, bool need_certificate, absl::string_view flags) {
  RETURN_IF_ERROR(CheckTlsFlags(files, need_certificate, flags));
  const std::string certificate_flag = absl::StrCat(flags, "-cert"),
                    key_flag = absl::StrCat(flags, "-key"), ca_flag = absl::StrCat(flags, "-ca");
  if (!files.authorities.empty()) RETURN_IF_ERROR(CheckAuthorities(ca_flag, files.authorities));
  if (files.certificate.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Certificate certificate,
                   ReadCertificate(certificate_flag, files.certificate));
  ASSIGN_OR_RETURN(const File file, Open(key_flag, files.key));
  const Key key(PEM_read_bio_PrivateKey(file.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(key_flag, " ", files.key, ": no key in PEM without a password"));
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::FailedPreconditionError(absl::StrCat(key_flag, " ", files.key,
                                                      ": it is not the key of ", certificate_flag,
                                                      " ", files.certificate));
  }
  return absl::OkStatus();
}

std::vector<std::string> UrisOfCertificate(const std::string& path) {
  std::vector<std::string> uris;
  const auto certificate = ReadCertificate("", path);
  if (!certificate.ok()) return uris;
  const std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate->get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      ASN1_STRING_length(uri));
  }
  return uris;
}

}  // namespace stagewright
