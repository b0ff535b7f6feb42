#include "planner_service/access/jwk_set.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/access/jwt_text.h"

namespace stagewright {
namespace {

using Json = nlohmann::json;
using Key = std::shared_ptr<EVP_PKEY>;

constexpr size_t kLargestSet = size_t{1} << 20;
constexpr size_t kMostKeys = 256;
constexpr int kFewestBits = 2048;
constexpr int kMostBits = 8192;
constexpr size_t kCoordinate = 32;  // Bytes of P-256 and Ed25519.

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Freed<Free>>;
using Number = Owned<BIGNUM, BN_free>;
using Builder = Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free>;
using Parameters = Owned<OSSL_PARAM, OSSL_PARAM_free>;
using KeyContext = Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free>;
using DigestContext = Owned<EVP_MD_CTX, EVP_MD_CTX_free>;
using EcdsaSignature = Owned<ECDSA_SIG, ECDSA_SIG_free>;

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Number NumberOf(absl::string_view bytes) {
  return Number(BN_bin2bn(Bytes(bytes), static_cast<int>(bytes.size()), nullptr));
}

// Null unless the parameters are those of a key that can be.
Key PublicKey(const char* type, OSSL_PARAM_BLD* builder) {
  const Parameters parameters(OSSL_PARAM_BLD_to_param(builder));
  const KeyContext maker(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* made = nullptr;
  if (parameters == nullptr || maker == nullptr || EVP_PKEY_fromdata_init(maker.get()) != 1 ||
      EVP_PKEY_fromdata(maker.get(), &made, EVP_PKEY_PUBLIC_KEY, parameters.get()) != 1)
    return nullptr;
  Key key(made, EVP_PKEY_free);
  const KeyContext checker(EVP_PKEY_CTX_new_from_pkey(nullptr, made, nullptr));
  return checker != nullptr && EVP_PKEY_public_check(checker.get()) == 1 ? key : nullptr;
}

absl::StatusOr<std::string> BytesOf(const Json& json, const char* field) {
  const std::optional<std::string> text = TextOf(json, field);
  std::optional<std::string> bytes = text.has_value() ? DecodeBase64Url(*text) : std::nullopt;
  if (!bytes.has_value() || bytes->empty())
    return absl::InvalidArgumentError(absl::StrCat("\"", field, "\" is no base64url"));
  return *std::move(bytes);
}

absl::StatusOr<Key> RsaKey(const Json& json) {
  ASSIGN_OR_RETURN(const std::string n, BytesOf(json, "n"));
  ASSIGN_OR_RETURN(const std::string e, BytesOf(json, "e"));
  if (n.size() > kMostBits / 8 || e.size() > 8)
    return absl::InvalidArgumentError(absl::StrCat("more than ", kMostBits, " bits"));
  const Number modulus = NumberOf(n), exponent = NumberOf(e);
  if (BN_num_bits(modulus.get()) < kFewestBits)
    return absl::InvalidArgumentError(absl::StrCat("fewer than ", kFewestBits, " bits"));
  const Builder builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, modulus.get());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, exponent.get());
  return PublicKey("RSA", builder.get());
}

absl::StatusOr<Key> P256Key(const Json& json) {
  ASSIGN_OR_RETURN(const std::string x, BytesOf(json, "x"));
  ASSIGN_OR_RETURN(const std::string y, BytesOf(json, "y"));
  if (x.size() != kCoordinate || y.size() != kCoordinate)
    return absl::InvalidArgumentError("\"x\" and \"y\" are not 32 bytes each");
  const std::string point = absl::StrCat("\x04", x, y);
  const Builder builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0);
  OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                   point.size());
  return PublicKey("EC", builder.get());
}

absl::StatusOr<Key> Ed25519Key(const Json& json) {
  ASSIGN_OR_RETURN(const std::string x, BytesOf(json, "x"));
  if (x.size() != kCoordinate) return absl::InvalidArgumentError("\"x\" is not 32 bytes");
  return Key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Bytes(x), x.size()),
             EVP_PKEY_free);
}

// RS256, ES256 or EdDSA by what the key is; empty for a key of another kind or for another purpose.
std::string AlgorithmOf(const Json& json) {
  const std::string type = TextOf(json, "kty").value_or("");
  const std::string curve = TextOf(json, "crv").value_or("");
  std::string natural = type == "RSA"                         ? "RS256"
                        : type == "EC" && curve == "P-256"    ? "ES256"
                        : type == "OKP" && curve == "Ed25519" ? "EdDSA"
                                                              : "";
  if (json.contains("use") && TextOf(json, "use") != "sig") return "";
  if (json.contains("alg") && TextOf(json, "alg") != natural) return "";
  return natural;
}

// What OpenSSL expects: JSON Web Signatures have r and s one behind the other, not in ASN.1.
std::string Asn1Signature(absl::string_view r_and_s) {
  if (r_and_s.size() != 2 * kCoordinate) return "";
  const EcdsaSignature signature(ECDSA_SIG_new());
  ECDSA_SIG_set0(signature.get(), NumberOf(r_and_s.substr(0, kCoordinate)).release(),
                 NumberOf(r_and_s.substr(kCoordinate)).release());
  unsigned char* encoded = nullptr;
  const int size = i2d_ECDSA_SIG(signature.get(), &encoded);
  std::string text = size > 0 ? std::string(reinterpret_cast<char*>(encoded), size) : "";
  OPENSSL_free(encoded);
  return text;
}

bool IsSignature(absl::string_view algorithm, EVP_PKEY* key, absl::string_view text,
                 absl::string_view signature) {
  const std::string asn1 = algorithm == "ES256" ? Asn1Signature(signature) : "";
  if (algorithm == "ES256") signature = asn1;
  const DigestContext context(EVP_MD_CTX_new());
  const EVP_MD* digest = algorithm == "EdDSA" ? nullptr : EVP_sha256();
  const bool is = EVP_DigestVerifyInit(context.get(), nullptr, digest, nullptr, key) == 1 &&
                  EVP_DigestVerify(context.get(), Bytes(signature), signature.size(), Bytes(text),
                                   text.size()) == 1;
  ERR_clear_error();  // This thread's next TLS call looks there.
  return is;
}

}  // namespace

absl::StatusOr<std::optional<JwkSet::Key>> JwkSet::ReadKey(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("is no object");
  if (json.contains("d") || json.contains("k"))
    return absl::InvalidArgumentError("is private: the planner needs public keys only");
  Key key;
  key.algorithm = AlgorithmOf(json);
  if (key.algorithm.empty()) return std::nullopt;
  if (json.contains("kid") && !(key.kid = TextOf(json, "kid")).has_value())
    return absl::InvalidArgumentError("\"kid\" is no text");
  auto made = key.algorithm == "RS256"   ? RsaKey(json)
              : key.algorithm == "ES256" ? P256Key(json)
                                         : Ed25519Key(json);
  ERR_clear_error();
  RETURN_IF_ERROR(made.status());
  if (*made == nullptr) return absl::InvalidArgumentError("is damaged");
  key.key = *std::move(made);
  return key;
}

absl::StatusOr<JwkSet> JwkSet::Parse(absl::string_view text) {
  if (text.size() > kLargestSet) return absl::InvalidArgumentError("larger than 1 MiB");
  ASSIGN_OR_RETURN(const Json json, ParseUniqueObject(text, "the key set"));
  const auto keys = json.find("keys");
  if (keys == json.end() || !keys->is_array())
    return absl::InvalidArgumentError("expected a JSON Web Key Set, {\"keys\": [...]}");
  if (keys->size() > kMostKeys)
    return absl::InvalidArgumentError(absl::StrCat("more than ", kMostKeys, " keys"));
  JwkSet set;
  for (size_t i = 0; i < keys->size(); ++i) {
    auto key = ReadKey((*keys)[i]);
    const std::string where = absl::StrCat("keys[", i, "]");
    if (!key.ok()) return Annotate(key.status(), where);
    if (!key->has_value()) continue;
    if ((*key)->kid.has_value() &&
        std::any_of(set.keys_.begin(), set.keys_.end(),
                    [&](const Key& other) { return other.kid == (*key)->kid; }))
      return absl::InvalidArgumentError(absl::StrCat(where, ": \"kid\" is given twice"));
    set.keys_.push_back(**std::move(key));
  }
  if (set.keys_.empty())
    return absl::InvalidArgumentError("no key for signatures by RS256, ES256 or EdDSA");
  return set;
}

bool JwkSet::Verifies(absl::string_view algorithm, const std::optional<std::string>& kid,
                      absl::string_view text, absl::string_view signature) const {
  const auto key = std::find_if(keys_.begin(), keys_.end(), [&](const Key& one) {
    return kid.has_value() ? one.kid == kid : keys_.size() == 1;
  });
  return key != keys_.end() && key->algorithm == algorithm &&
         IsSignature(key->algorithm, key->key.get(), text, signature);
}

}  // namespace stagewright
