// What strangers wrote, in logs and errors: characters that a terminal obeys instead of showing
// them.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace stagewright {

// How many bytes the control character has that stands at `at` in a UTF-8 text; 0: there is none.
// Also those of Latin-1, U+0080 to U+009F, which some terminals obey and which have two bytes.
inline size_t ControlCharacterAt(absl::string_view text, size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  if (c < 0x20 || c == 0x7f) return 1;
  if (c != 0xc2 || at + 1 == text.size()) return 0;
  const auto next = static_cast<unsigned char>(text[at + 1]);
  return next >= 0x80 && next < 0xa0 ? 2 : 0;
}

inline bool HasControlCharacter(absl::string_view text) {
  for (size_t i = 0; i < text.size(); ++i)
    if (ControlCharacterAt(text, i) > 0) return true;
  return false;
}

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
