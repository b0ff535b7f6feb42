// Errors that quote what strangers wrote.
#pragma once

#include <string>

#include "common/base/control_character.h"
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
  for (size_t i = 0; i < message.size(); ++i) {
    if (const size_t control = ControlCharacterAt(message, i); control > 0)
      message.replace(i, control, "?");
  }
  return absl::Status(status.code(), message);
}

}  // namespace stagewright
