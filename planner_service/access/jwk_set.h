// The public keys that sign tokens: a JSON Web Key Set (RFC 7517), as identity providers offer it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY.

namespace stagewright {

class JwkSet {
 public:
  // Keys for signatures by RS256 (RSA of 2048 to 8192 bits), ES256 (P-256) and EdDSA (Ed25519);
  // those for other purposes or algorithms are passed over. INVALID_ARGUMENT names the key by its
  // position: a key that is damaged, too short, private or a shared secret, and a kid given twice;
  // it is also INVALID_ARGUMENT if no key is left.
  static absl::StatusOr<JwkSet> Parse(absl::string_view text);

  // Whether `signature` is one of `text`, made with the key that is called `kid`; without it, with
  // the only one that there is. The algorithm is the key's own: one of another name fits no key.
  bool Verifies(absl::string_view algorithm, const std::optional<std::string>& kid,
                absl::string_view text, absl::string_view signature) const;

  size_t size() const { return keys_.size(); }

 private:
  struct Key {
    std::optional<std::string> kid;
    std::string algorithm;
    std::shared_ptr<evp_pkey_st> key;
  };
  // Nothing for a key that is passed over.
  static absl::StatusOr<std::optional<Key>> ReadKey(const nlohmann::json& json);

  std::vector<Key> keys_;
};

}  // namespace stagewright
