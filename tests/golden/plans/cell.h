// What a table of golden answers holds of one answer: enough to see that it changed, and whether
// the change is for the better.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/units.h"

namespace stagewright::golden {

// Eight hexadecimal digits: the CRC-32 of the text.
std::string Digest(std::string_view text);

// "3f2a9c01/1234.567us": a digest and an exact time.
std::string TimedCell(std::string_view digested, Nanos time);
// "3f2a9c01/infeasible": a digest and a word without spaces.
std::string WordCell(std::string_view digested, std::string_view word);

// The time of a TimedCell; nullopt of any other.
std::optional<Nanos> TimeOf(std::string_view cell);

}  // namespace stagewright::golden
