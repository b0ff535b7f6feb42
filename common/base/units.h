// Times are int64 nanoseconds, sizes int64 bytes; everywhere, in memory and on the wire.
#pragma once

#include <cstdint>
#include <string>

namespace stagewright {

using Nanos = int64_t;
using Bytes = int64_t;

inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;
inline constexpr Bytes kKiB = int64_t{1} << 10;
inline constexpr Bytes kMiB = int64_t{1} << 20;
inline constexpr Bytes kGiB = int64_t{1} << 30;

inline double ToSeconds(Nanos t) { return static_cast<double>(t) * 1e-9; }

// "1.25 ms", "812 us"; three significant digits.
std::string FormatDuration(Nanos t);
// "1.5 GiB", "512 B"; three significant digits, binary units.
std::string FormatBytes(Bytes bytes);

}  // namespace stagewright
