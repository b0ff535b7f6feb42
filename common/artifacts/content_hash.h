// What bytes are known by, wherever they came from.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace stagewright {

// SHA-256 in 64 hexadecimal digits.
std::string ContentHash(absl::string_view bytes);

// 64 hexadecimal digits in lower case.
bool IsContentHash(absl::string_view text);

}  // namespace stagewright
