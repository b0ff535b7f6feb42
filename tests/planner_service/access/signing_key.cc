#include "tests/planner_service/access/signing_key.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright::testing {
namespace {

std::string NumberOf(EVP_PKEY* key, const char* name, int size = 0) {
  BIGNUM* number = nullptr;
  CHECK(EVP_PKEY_get_bn_param(key, name, &number) == 1);
  std::string bytes(size > 0 ? size : BN_num_bytes(number), '\0');
  BN_bn2binpad(number, reinterpret_cast<unsigned char*>(bytes.data()),
               static_cast<int>(bytes.size()));
  BN_free(number);
  return Base64Url(bytes);
}

std::string Joined(const std::string& header, const std::string& claims) {
  return absl::StrCat(Base64Url(header), ".", Base64Url(claims));
}

// r and s one behind the other.
std::string RawSignature(const std::string& asn1) {
  const auto* at = reinterpret_cast<const unsigned char*>(asn1.data());
  ECDSA_SIG* signature = d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(asn1.size()));
  std::string raw(64, '\0');
  auto* bytes = reinterpret_cast<unsigned char*>(raw.data());
  BN_bn2binpad(ECDSA_SIG_get0_r(signature), bytes, 32);
  BN_bn2binpad(ECDSA_SIG_get0_s(signature), bytes + 32, 32);
  ECDSA_SIG_free(signature);
  return raw;
}

}  // namespace

std::string Base64Url(const std::string& bytes) { return absl::WebSafeBase64Escape(bytes); }

std::string KeySet(const std::string& keys) { return absl::StrCat("{\"keys\": [", keys, "]}"); }

std::string SignHs256(const std::string& secret, const std::string& header,
                      const std::string& claims) {
  const std::string text = Joined(header, claims);
  unsigned char mac[32];
  unsigned int size = sizeof mac;
  CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac,
             &size) != nullptr);
  return absl::StrCat(text, ".", Base64Url(std::string(reinterpret_cast<char*>(mac), size)));
}

SigningKey::SigningKey(const std::string& algorithm, int bits) : algorithm_(algorithm) {
  EVP_PKEY* key = algorithm == "RS256"   ? EVP_RSA_gen(static_cast<unsigned int>(bits))
                  : algorithm == "ES256" ? EVP_EC_gen("prime256v1")
                                         : EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  CHECK(key != nullptr);
  key_ = std::shared_ptr<EVP_PKEY>(key, EVP_PKEY_free);
}

std::string SigningKey::Jwk(const std::string& more) const {
  if (algorithm_ == "RS256") {
    return absl::StrCat("{\"kty\": \"RSA\", \"n\": \"", NumberOf(key_.get(), "n"), "\", \"e\": \"",
                        NumberOf(key_.get(), "e"), "\"", more, "}");
  }
  if (algorithm_ == "ES256") {
    return absl::StrCat("{\"kty\": \"EC\", \"crv\": \"P-256\", \"x\": \"",
                        NumberOf(key_.get(), OSSL_PKEY_PARAM_EC_PUB_X, 32), "\", \"y\": \"",
                        NumberOf(key_.get(), OSSL_PKEY_PARAM_EC_PUB_Y, 32), "\"", more, "}");
  }
  std::string bytes(32, '\0');
  size_t size = bytes.size();
  CHECK(EVP_PKEY_get_raw_public_key(key_.get(), reinterpret_cast<unsigned char*>(bytes.data()),
                                    &size) == 1);
  return absl::StrCat("{\"kty\": \"OKP\", \"crv\": \"Ed25519\", \"x\": \"", Base64Url(bytes), "\"",
                      more, "}");
}

std::string SigningKey::Sign(const std::string& header, const std::string& claims) const {
  const std::string text = Joined(header, claims);
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  const EVP_MD* digest = algorithm_ == "EdDSA" ? nullptr : EVP_sha256();
  CHECK(EVP_DigestSignInit(context, nullptr, digest, nullptr, key_.get()) == 1);
  std::string signature(1024, '\0');
  size_t size = signature.size();
  CHECK(EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()), &size,
                       reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1);
  EVP_MD_CTX_free(context);
  signature.resize(size);
  if (algorithm_ == "ES256") signature = RawSignature(signature);
  return absl::StrCat(text, ".", Base64Url(signature));
}

std::string SigningKey::PublicPem() const {
  BIO* memory = BIO_new(BIO_s_mem());
  PEM_write_bio_PUBKEY(memory, key_.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  std::string pem(data, static_cast<size_t>(size));
  BIO_free(memory);
  return pem;
}

}  // namespace stagewright::testing
