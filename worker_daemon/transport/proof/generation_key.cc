#include "worker_daemon/transport/proof/generation_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright {
namespace {

// What a key is used for.
constexpr absl::string_view kControl = "stagewright transport 1: control";
constexpr absl::string_view kTags = "stagewright transport 1: tags";

unsigned char* Bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }
const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string Digest(absl::string_view key, absl::string_view text) {
  std::string digest(GenerationKey::kBytes, '\0');
  CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), Bytes(text), text.size(),
             Bytes(digest), nullptr) != nullptr);
  return digest;
}

// The words one after the other, each with its length, so that none can pass for a part of another.
template <typename... Words>
std::string Joined(const Words&... words) {
  std::string joined;
  (AppendString(absl::StrCat(words), &joined), ...);
  return joined;
}

EVP_CIPHER_CTX* TagCipher(const TransportIdentity& self, absl::string_view key) {
  if (key.empty()) return nullptr;
  const std::string derived = Digest(key, Joined(kTags, self.job, self.generation));
  EVP_CIPHER_CTX* cipher = EVP_CIPHER_CTX_new();
  CHECK(cipher != nullptr &&
        EVP_EncryptInit_ex(cipher, EVP_aes_256_ecb(), nullptr, Bytes(derived), nullptr) == 1);
  return cipher;
}

}  // namespace

absl::Status GenerationKey::Check(absl::string_view key) {
  if (key.empty() || key.size() == kBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("transport_key: ", key.size(), " bytes, not ", kBytes));
}

GenerationKey::GenerationKey(TransportIdentity self, std::string key)
    : self_(std::move(self)),
      key_(std::move(key)),
      tags_(TagCipher(self_, key_), &EVP_CIPHER_CTX_free) {}

GenerationKey::~GenerationKey() = default;

std::string GenerationKey::Challenge() const {
  if (key_.empty()) return "";
  std::string challenge(kBytes, '\0');
  CHECK(RAND_bytes(Bytes(challenge), kBytes) == 1);
  return challenge;
}

std::string GenerationKey::Proof(int from, int to, uint32_t type, absl::string_view text) const {
  return Digest(key_, Joined(kControl, self_.job, self_.generation, from, to, type, text));
}

std::string GenerationKey::Seal(int to, uint32_t type, absl::string_view text) const {
  std::string sealed(text);
  if (!key_.empty()) sealed += Proof(self_.device, to, type, text);
  return sealed;
}

std::optional<std::string> GenerationKey::Open(int from, uint32_t type,
                                               absl::string_view sealed) const {
  if (key_.empty()) return std::string(sealed);
  if (sealed.size() < kBytes) return std::nullopt;
  const absl::string_view text = sealed.substr(0, sealed.size() - kBytes);
  const std::string proof = Proof(from, self_.device, type, text);
  if (CRYPTO_memcmp(proof.data(), sealed.data() + text.size(), kBytes) != 0) return std::nullopt;
  return std::string(text);
}

uint64_t GenerationKey::Conceal(uint64_t tag) const {
  if (tags_ == nullptr) return tag;
  unsigned char block[16] = {};
  std::memcpy(block, &tag, sizeof(tag));
  int written = 0;
  CHECK(EVP_EncryptUpdate(tags_.get(), block, &written, block, sizeof(block)) == 1 &&
        written == sizeof(block));
  std::memcpy(&tag, block, sizeof(tag));
  return tag;
}

}  // namespace stagewright
