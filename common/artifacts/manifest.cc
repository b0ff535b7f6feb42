#include "common/artifacts/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/artifacts/content_hash.h"

namespace stagewright {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{4} << 20;
constexpr uint64_t kMostChunks = 65'536;
constexpr char kFormat[] = "stagewright-artifact/1";

uint64_t ChunksFor(uint64_t size, uint64_t chunk_bytes) {
  return size / chunk_bytes + (size % chunk_bytes > 0 ? 1 : 0);
}

// A whole number that is there; else nothing.
std::optional<uint64_t> Number(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

}  // namespace

uint64_t ArtifactManifest::BytesOf(size_t chunk) const {
  return std::min(chunk_bytes, size - chunk * chunk_bytes);
}

std::pair<size_t, size_t> ArtifactManifest::ChunksOf(uint64_t begin, uint64_t end) const {
  if (begin >= end) return {0, 0};
  return {begin / chunk_bytes, ChunksFor(end, chunk_bytes)};
}

uint64_t ChunkBytesFor(uint64_t size) {
  uint64_t bytes = kChunkBytes;
  while (bytes < kMostChunkBytes && ChunksFor(size, bytes) > kMostChunks) bytes *= 2;
  return bytes;
}

std::string ToText(const ArtifactManifest& manifest) {
  const nlohmann::json json = {{"format", kFormat},
                               {"size", manifest.size},
                               {"chunk_bytes", manifest.chunk_bytes},
                               {"chunks", manifest.chunks}};
  return absl::StrCat(json.dump(), "\n");
}

absl::StatusOr<ArtifactManifest> ParseManifest(absl::string_view text) {
  const auto bad = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("no manifest of an artifact: ", what...));
  };
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return bad("it is no JSON object");
  if (json.value("format", nlohmann::json()) != kFormat) return bad("its format is not ", kFormat);
  const auto size = Number(json, "size"), chunk_bytes = Number(json, "chunk_bytes");
  if (!size.has_value()) return bad("size is missing");
  if (!chunk_bytes.has_value() || *chunk_bytes == 0 || *chunk_bytes > kMostChunkBytes)
    return bad("chunk_bytes is not from 1 to ", kMostChunkBytes);
  const auto chunks = json.find("chunks");
  if (chunks == json.end() || !chunks->is_array() ||
      chunks->size() != ChunksFor(*size, *chunk_bytes))
    return bad("chunks is no list of as many hashes as its size needs");
  ArtifactManifest manifest = {*size, *chunk_bytes, {}};
  for (const nlohmann::json& chunk : *chunks) {
    if (!chunk.is_string() || !IsContentHash(chunk.get_ref<const std::string&>()))
      return bad("chunks has something that is no hash");
    manifest.chunks.push_back(chunk.get<std::string>());
  }
  return manifest;
}

}  // namespace stagewright
