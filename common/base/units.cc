#include "common/base/units.h"

#include <cmath>
#include <cstdlib>

#include "absl/strings/str_format.h"

namespace stagewright {
namespace {

std::string ThreeDigits(double value, const char* unit) {
  const double magnitude = std::fabs(value);
  const int decimals = magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
  std::string text = absl::StrFormat("%.*f", decimals, value);
  if (decimals > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text + " " + unit;
}

}  // namespace

std::string FormatDuration(Nanos t) {
  const Nanos magnitude = std::max(t, -t);
  const double value = static_cast<double>(t);
  if (magnitude >= kSecond) return ThreeDigits(value / static_cast<double>(kSecond), "s");
  if (magnitude >= kMillisecond)
    return ThreeDigits(value / static_cast<double>(kMillisecond), "ms");
  if (magnitude >= kMicrosecond)
    return ThreeDigits(value / static_cast<double>(kMicrosecond), "us");
  return absl::StrFormat("%d ns", t.count());
}

std::string FormatBytes(Bytes bytes) {
  const Bytes magnitude = std::max(bytes, -bytes);
  const double value = static_cast<double>(bytes);
  if (magnitude >= kGiB) return ThreeDigits(value / static_cast<double>(kGiB), "GiB");
  if (magnitude >= kMiB) return ThreeDigits(value / static_cast<double>(kMiB), "MiB");
  if (magnitude >= kKiB) return ThreeDigits(value / static_cast<double>(kKiB), "KiB");
  return absl::StrFormat("%d B", bytes.count());
}

}  // namespace stagewright
