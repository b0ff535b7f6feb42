#include "planner_service/store/checksum.h"

#include <zlib.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace stagewright {

uint32_t EntryChecksum(absl::string_view key, absl::string_view value) {
  const auto add = [](uLong sum, absl::string_view bytes) {
    if (bytes.empty()) return sum;  // zlib takes a null pointer for a wish to begin anew.
    return crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  };
  // The key's length is in it: bytes that move from the one to the other are seen.
  const std::string head = absl::StrCat(key.size(), ":");
  return static_cast<uint32_t>(add(add(add(0, head), key), value));
}

}  // namespace stagewright
