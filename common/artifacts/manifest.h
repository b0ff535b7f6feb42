// What an artifact is made of: its size and the hashes of its chunks, so that whoever reads a part
// knows that it is the right one. The manifest's own hash is the artifact's name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace stagewright {

// The longest that are read.
inline constexpr size_t kMostManifestBytes = size_t{16} << 20;
inline constexpr uint64_t kMostChunkBytes = uint64_t{64} << 20;

struct ArtifactManifest {
  uint64_t size = 0;
  uint64_t chunk_bytes = 1;         // All chunks but the last have as many.
  std::vector<std::string> chunks;  // Their hashes, in order (content_hash.h).

  uint64_t BytesOf(size_t chunk) const;
  // The chunks that the bytes [begin, end) lie in: [first, second). REQUIRES: end <= size.
  std::pair<size_t, size_t> ChunksOf(uint64_t begin, uint64_t end) const;
};

// How long the chunks of what has `size` bytes are: 4 MiB, or more where there would be very many.
// Equal files have equal names because it depends on nothing else.
uint64_t ChunkBytesFor(uint64_t size);

// JSON in one form only.
std::string ToText(const ArtifactManifest& manifest);
// INVALID_ARGUMENT unless it is a manifest whose chunks make up its size, none longer than 64 MiB.
absl::StatusOr<ArtifactManifest> ParseManifest(absl::string_view text);

}  // namespace stagewright
