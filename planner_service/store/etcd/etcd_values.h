// How the values of a store stand in etcd, whose requests are limited to 1.5 MiB: small ones as
// they are, large ones in pieces of their own that the entry names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace stagewright {

// What an entry says of a value that is kept in pieces.
struct EtcdPieces {
  std::string id;  // A name that this value alone has.
  uint64_t bytes = 0;
  uint32_t checksum = 0;
};

inline constexpr size_t kEtcdPieceBytes = size_t{1} << 20;

// The value of an entry: the store's own, or where it is. DATA_LOSS if it is neither.
std::string InlineEntry(absl::string_view value);
std::string PiecesEntry(const EtcdPieces& pieces);
struct EtcdEntry {
  bool in_pieces = false;
  std::string value;  // Unless in pieces.
  EtcdPieces pieces;
};
absl::StatusOr<EtcdEntry> ParseEtcdEntry(absl::string_view entry);

// How many entries are read at once at first, and at most.
inline constexpr int64_t kEtcdFirstPage = 32;
inline constexpr int64_t kEtcdLargestPage = 512;
// How many are read at once after a page of so many, the largest of which has so many bytes: some
// 8 MiB, which etcd takes for one answer, if they stay alike. At most twice as many, since others
// may be larger: a page that takes too long is read again as the first one.
int64_t NextEtcdPage(int64_t page, size_t largest_bytes);

// A name that no other value has.
std::string NewPiecesId();
// Below the prefix of pieces, in their order.
std::string PieceKey(const std::string& id, size_t index);

}  // namespace stagewright
