// How the transports of one generation of a job tell each other from strangers: by a key that the
// planner gives to the workers of the generation and to nobody else.
//
// UCX, which they meet over, does not say who has connected, nor from which connection a message
// came. So what is proved is proved of messages: each control message ends with a proof
// (HMAC-SHA256, RFC 2104) over who says what to whom, in which job and generation, and the tags of
// all other messages, which are equal at both ends or never meet, are numbers that only who has the
// key can work out (AES as a pseudo-random function). Payloads are neither encrypted nor proved:
// who can read or change what is on the way is not kept out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker_daemon/transport/identity.h"

struct evp_cipher_ctx_st;  // OpenSSL's.

namespace stagewright {

// What `self` knows. Not thread-safe.
class GenerationKey {
 public:
  static constexpr size_t kBytes = 32;  // A key, a challenge and a proof have as many.

  // Whether `key` can be one: kBytes long, or empty, where nobody proves anything: messages and
  // tags are as they are then. INVALID_ARGUMENT if not.
  static absl::Status Check(absl::string_view key);

  // REQUIRES: Check(key).
  GenerationKey(TransportIdentity self, std::string key);
  ~GenerationKey();

  // A random question, another each time; who answers it has heard it now. Empty without a key.
  std::string Challenge() const;

  // `text` as it is sent to the device `to` in a message of a type, with the proof of it.
  std::string Seal(int to, uint32_t type, absl::string_view text) const;
  // The text of what Seal made of it at the device `from` for `self`; nothing for anything else.
  std::optional<std::string> Open(int from, uint32_t type, absl::string_view sealed) const;

  // What stands for the tag of a message that is no control message, of all 64 bits.
  uint64_t Conceal(uint64_t tag) const;

 private:
  std::string Proof(int from, int to, uint32_t type, absl::string_view text) const;

  const TransportIdentity self_;
  const std::string key_;
  const std::unique_ptr<evp_cipher_ctx_st, void (*)(evp_cipher_ctx_st*)> tags_;  // Null: no key.
};

}  // namespace stagewright
