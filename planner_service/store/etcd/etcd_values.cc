#include "planner_service/store/etcd/etcd_values.h"

#include <algorithm>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace stagewright {
namespace {

constexpr char kInline = 'v';
constexpr char kPieces = 'p';

}  // namespace

std::string InlineEntry(absl::string_view value) {
  return absl::StrCat(absl::string_view(&kInline, 1), value);
}

std::string PiecesEntry(const EtcdPieces& pieces) {
  return absl::StrCat(absl::string_view(&kPieces, 1), pieces.id, " ", pieces.bytes, " ",
                      pieces.checksum);
}

absl::StatusOr<EtcdEntry> ParseEtcdEntry(absl::string_view entry) {
  const absl::string_view rest = entry.empty() ? entry : entry.substr(1);
  EtcdEntry parsed;
  if (!entry.empty() && entry[0] == kInline) {
    parsed.value = std::string(rest);
    return parsed;
  }
  const std::vector<std::string> words = absl::StrSplit(rest, ' ');
  parsed.in_pieces = true;
  if (entry.empty() || entry[0] != kPieces || words.size() != 3 ||
      !absl::SimpleAtoi(words[1], &parsed.pieces.bytes) ||
      !absl::SimpleAtoi(words[2], &parsed.pieces.checksum))
    return absl::DataLossError("is not an entry of a store");
  parsed.pieces.id = words[0];
  return parsed;
}

int64_t NextEtcdPage(int64_t page, size_t largest_bytes) {
  constexpr size_t kPageBytes = size_t{8} << 20;
  const auto fit = static_cast<int64_t>(kPageBytes / std::max<size_t>(largest_bytes, 1));
  return std::clamp(fit, kEtcdFirstPage, std::min(2 * page, kEtcdLargestPage));
}

std::string NewPiecesId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

std::string PieceKey(const std::string& id, size_t index) {
  return absl::StrFormat("%s/%08d", id, index);
}

}  // namespace stagewright
