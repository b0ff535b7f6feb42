#include "planner_service/store/content_hash.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "common/base/check.h"

namespace stagewright {

std::string ContentHash(absl::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) == 1);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace stagewright
