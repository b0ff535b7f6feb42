// What times and sizes are counted in, everywhere, in memory and on the wire.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/quantity.h"

namespace stagewright {

using Nanos = Quantity<struct NanosKind>;  // Nanoseconds.
using Bytes = Quantity<struct BytesKind>;

inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;
inline constexpr Bytes kKiB = int64_t{1} << 10;
inline constexpr Bytes kMiB = int64_t{1} << 20;
inline constexpr Bytes kGiB = int64_t{1} << 30;

inline double ToSeconds(Nanos t) { return static_cast<double>(t) * 1e-9; }
// Towards zero.
inline Nanos FromSeconds(double seconds) { return Nanos(seconds * 1e9); }

// "1.25 ms", "812 us"; three significant digits.
std::string FormatDuration(Nanos t);
// "1.5 GiB", "512 B"; three significant digits, binary units.
std::string FormatBytes(Bytes bytes);

}  // namespace stagewright
