// Addresses of transports, and what they say to each other: nobody here has the key.
#include "tests/fuzz/fuzz_target.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/proof/generation_key.h"

namespace {

using namespace stagewright;

void LookAtAddress(const std::string& bytes) {
  for (const char* scheme : {"local", "ucx", "routing"}) {
    const auto address = DecodeAddress(scheme, bytes);
    fuzz::CheckRefusal(address.status());
    if (address.ok() && EncodeAddress(*address) != bytes) fuzz::Fail("an address of another form");
    fuzz::CheckRefusal(DecodePeerAddress(scheme, {"job", 1, 0}, 1, bytes).status());
  }
}

// What is at the end of an address, as transport/identity.cc has it: without it no mutated one
// would be looked into.
std::string WithFingerprint(std::string bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  for (int byte = 0; byte < 8; ++byte) bytes.push_back(static_cast<char>(hash >> (8 * byte)));
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const GenerationKey key({"job", 1, 0}, std::string(GenerationKey::kBytes, 'k'));
  const std::string text(fuzz::Text(data, size));
  LookAtAddress(text);
  LookAtAddress(WithFingerprint(text));
  if (size >= 8) LookAtAddress(WithFingerprint(text.substr(0, size - 8)));
  for (const uint32_t type : {0, 1, 2, 3}) {
    if (key.Open(1, type, text).has_value()) fuzz::Fail("believes a stranger");
  }
  return 0;
}
