// Errors that quote what strangers wrote.
#pragma once

#include <string>

#include "common/base/status.h"

namespace stagewright {

// `status` in one line of bounded length, whatever text of others it quotes: control characters
// become "?", and what is beyond 1,000 bytes "...".
inline absl::Status OneLine(const absl::Status& status) {
  if (status.ok()) return status;
  constexpr size_t kLongest = 1000;
  std::string message(status.message());
  if (message.size() > kLongest) {
    size_t end = kLongest;
    while (end > 0 && (message[end] & 0xc0) == 0x80) --end;  // Whole characters only.
    message.resize(end);
    message += "...";
  }
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return absl::Status(status.code(), message);
}

}  // namespace stagewright
