// What an identity provider does: makes keys, shows their public halves, signs tokens.
#pragma once

#include <memory>
#include <string>

struct evp_pkey_st;

namespace stagewright::testing {

class SigningKey {
 public:
  // "RS256", "ES256" or "EdDSA".
  explicit SigningKey(const std::string& algorithm, int bits = 2048);

  // The public half as a JSON Web Key, with `more` (", \"kid\": ...") among its fields.
  std::string Jwk(const std::string& more = "") const;
  // HEADER.CLAIMS.SIGNATURE of the two JSON texts as they are.
  std::string Sign(const std::string& header, const std::string& claims) const;
  // The public half as it stands in a PEM file: what an attacker has.
  std::string PublicPem() const;

 private:
  std::string algorithm_;
  std::shared_ptr<evp_pkey_st> key_;
};

// {"keys": [KEYS]}.
std::string KeySet(const std::string& keys);
std::string Base64Url(const std::string& bytes);
// HEADER.CLAIMS.SIGNATURE by HMAC-SHA-256 with a secret.
std::string SignHs256(const std::string& secret, const std::string& header,
                      const std::string& claims);

}  // namespace stagewright::testing
