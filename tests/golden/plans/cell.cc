#include "tests/golden/plans/cell.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace stagewright::golden {

std::string Digest(std::string_view text) {
  const auto* bytes = reinterpret_cast<const Bytef*>(text.data());
  return absl::StrFormat("%08x", static_cast<uint32_t>(crc32_z(0, bytes, text.size())));
}

std::string TimedCell(std::string_view digested, Nanos time) {
  return absl::StrFormat("%s/%d.%03dus", Digest(digested), time / kMicrosecond,
                         (time % kMicrosecond).count());
}

std::string WordCell(std::string_view digested, std::string_view word) {
  return Digest(digested) + "/" + std::string(word);
}

std::optional<Nanos> TimeOf(std::string_view cell) {
  std::string figure(cell.substr(std::min(cell.size(), cell.find('/') + 1)));
  if (!absl::EndsWith(figure, "us")) return std::nullopt;
  figure.resize(figure.size() - 2);
  // The three digits after the point make it nanoseconds.
  Nanos time = 0;
  if (!absl::SimpleAtoi(absl::StrReplaceAll(figure, {{".", ""}}), &time)) return std::nullopt;
  return time;
}

}  // namespace stagewright::golden
