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
  std::string id;  // Of the value as it was written once.
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

// A name that no other value has.
std::string NewPiecesId();
// Below the prefix of pieces, in their order.
std::string PieceKey(const std::string& id, size_t index);

}  // namespace stagewright
