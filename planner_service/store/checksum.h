// What is kept beside an entry to tell whether it is as it was written.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace stagewright {

// CRC-32 of both, and of where one ends.
uint32_t EntryChecksum(absl::string_view key, absl::string_view value);

}  // namespace stagewright
