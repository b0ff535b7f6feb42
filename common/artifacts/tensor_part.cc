#include "common/artifacts/tensor_part.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// Bytes of the artifact that go to a place of the part.
struct Piece {
  uint64_t begin = 0, end = 0, to = 0;
};

// The tensors in the order in which they lie in the artifact.
std::vector<SafetensorsEntry> Wanted(const SafetensorsHeader& header,
                                     const std::set<std::string>& names) {
  std::vector<SafetensorsEntry> wanted;
  for (const SafetensorsEntry& tensor : header.tensors)
    if (names.contains(tensor.name)) wanted.push_back(tensor);
  std::sort(wanted.begin(), wanted.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  return wanted;
}

std::vector<size_t> ChunksOf(const ArtifactManifest& manifest, const std::vector<Piece>& pieces) {
  std::vector<size_t> chunks;
  for (const Piece& piece : pieces) {
    const auto [first, end] = manifest.ChunksOf(piece.begin, piece.end);
    for (size_t chunk = first; chunk < end; ++chunk)
      if (chunks.empty() || chunks.back() < chunk) chunks.push_back(chunk);
  }
  return chunks;
}

// What of the pieces lies in bytes [begin, begin + bytes.size()) of the artifact. O(pieces).
absl::Status WritePieces(const PositionedFile& file, const std::vector<Piece>& pieces,
                         uint64_t begin, absl::string_view bytes) {
  const uint64_t end = begin + bytes.size();
  for (const Piece& piece : pieces) {
    const uint64_t from = std::max(begin, piece.begin), to = std::min(end, piece.end);
    if (from >= to) continue;
    RETURN_IF_ERROR(
        file.Write(piece.to + (from - piece.begin), bytes.substr(from - begin, to - from)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ReadHeader(const Artifact& artifact) {
  return ReadSafetensorsHeader(
      artifact.name(), artifact.size(),
      [&](uint64_t offset, std::span<std::byte> out) { return artifact.Read(offset, out); });
}

absl::StatusOr<TensorPart> TensorPart::Fetch(const Artifact& artifact,
                                             const SafetensorsHeader& header,
                                             const std::set<std::string>& names,
                                             const std::string& folder,
                                             const FetchProgress& progress) {
  std::error_code ignored;  // Who makes the file says why.
  std::filesystem::create_directories(folder, ignored);
  ASSIGN_OR_RETURN(PositionedFile file, PositionedFile::Create(absl::StrCat(folder, "/part")));
  RETURN_IF_ERROR(file.Unname());
  std::vector<SafetensorsEntry> tensors = Wanted(header, names);
  std::vector<Piece> pieces;
  uint64_t offset = 0;
  for (SafetensorsEntry& tensor : tensors) {
    const uint64_t begin = header.bytes + tensor.begin, end = header.bytes + tensor.end;
    pieces.push_back({begin, end, offset});
    tensor.begin = offset;
    offset += end - begin;
    tensor.end = offset;
  }
  const std::string text = SafetensorsHeaderText(tensors, header.metadata);
  for (Piece& piece : pieces) piece.to += text.size();
  RETURN_IF_ERROR(file.Write(0, text));
  const ArtifactManifest& manifest = artifact.manifest();
  const std::vector<size_t> chunks = ChunksOf(manifest, pieces);
  uint64_t total = 0;
  for (const size_t chunk : chunks) total += manifest.BytesOf(chunk);
  std::atomic<uint64_t> fetched = 0;
  RETURN_IF_ERROR(artifact.ForEachChunk(chunks, [&](size_t chunk, absl::string_view bytes) {
    const uint64_t so_far = fetched += bytes.size();
    if (progress != nullptr) progress(so_far, total);
    return WritePieces(file, pieces, chunk * manifest.chunk_bytes, bytes);
  }));
  return TensorPart(std::move(file));
}

}  // namespace stagewright
