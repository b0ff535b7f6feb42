// Whole text files, with a bound on what they may take.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace stagewright {

// The most that a text file given by a user may have.
inline constexpr size_t kLargestTextFile = size_t{64} << 20;

// A text without the byte order mark of UTF-8, which some editors put in front of one.
absl::string_view WithoutByteOrderMark(absl::string_view text);

// The contents of a file, without such a mark. NOT_FOUND if it cannot be read, INVALID_ARGUMENT if
// it is larger than kLargestTextFile, of which no more is read; messages start with the path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace stagewright
