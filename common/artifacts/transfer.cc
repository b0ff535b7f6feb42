#include "common/artifacts/transfer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/artifacts/artifact_keys.h"
#include "common/artifacts/artifact_name.h"
#include "common/artifacts/content_hash.h"
#include "common/artifacts/positioned_file.h"
#include "common/base/regular_file.h"

namespace stagewright {
namespace {

using TakeBytes = std::function<absl::Status(absl::string_view bytes)>;

// Hands the file to `take` in pieces of `chunk_bytes`; the last may be shorter.
absl::Status ReadChunks(const std::string& path, uint64_t chunk_bytes, const TakeBytes& take) {
  ASSIGN_OR_RETURN(const int file, OpenRegularFile(path));
  const absl::Cleanup closed = [file] { close(file); };
  std::string chunk(chunk_bytes, '\0');
  for (size_t filled = chunk.size(); filled == chunk.size();) {
    filled = 0;
    while (filled < chunk.size()) {
      const ssize_t count = read(file, chunk.data() + filled, chunk.size() - filled);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
      if (count == 0) break;
      filled += static_cast<size_t>(count);
    }
    if (filled > 0) RETURN_IF_ERROR(take(absl::string_view(chunk).substr(0, filled)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ArtifactManifest> ManifestOf(const std::string& path, uint64_t chunk_bytes) {
  std::error_code unknown;  // Who opens it says why.
  const uint64_t size = std::filesystem::file_size(path, unknown);
  ArtifactManifest manifest;
  manifest.chunk_bytes = chunk_bytes > 0 ? chunk_bytes : ChunkBytesFor(unknown ? 0 : size);
  RETURN_IF_ERROR(ReadChunks(path, manifest.chunk_bytes, [&](absl::string_view bytes) {
    manifest.chunks.push_back(ContentHash(bytes));
    manifest.size += bytes.size();
    return absl::OkStatus();
  }));
  return manifest;
}

absl::Status ReadWhole(const Artifact& artifact, const Artifact::TakeChunk& take) {
  std::vector<size_t> chunks(artifact.manifest().chunks.size());
  std::iota(chunks.begin(), chunks.end(), size_t{0});
  return artifact.ForEachChunk(chunks, take);
}

// Those from the first to one that is not there.
absl::StatusOr<size_t> ChunksThere(const ArtifactStore& store, const std::string& name) {
  for (size_t chunk = 0;; ++chunk) {
    ASSIGN_OR_RETURN(const bool has, store.Has(ChunkKey(name, chunk)));
    if (!has) return chunk;
  }
}

}  // namespace

absl::StatusOr<std::string> PutArtifact(ArtifactStore& store, const std::string& path,
                                        uint64_t chunk_bytes) {
  ASSIGN_OR_RETURN(const ArtifactManifest manifest, ManifestOf(path, chunk_bytes));
  const std::string text = ToText(manifest);
  const std::string name = ArtifactNameOf(text);
  const auto there = store.Read(ManifestKey(name), kMostManifestBytes, nullptr);
  if (there.ok() && *there == text) return name;
  size_t next = 0;
  RETURN_IF_ERROR(ReadChunks(path, manifest.chunk_bytes, [&](absl::string_view bytes) {
    const size_t chunk = next++;
    if (chunk >= manifest.chunks.size() || ContentHash(bytes) != manifest.chunks[chunk])
      return absl::AbortedError(absl::StrCat(path, ": it changed while it was read"));
    ASSIGN_OR_RETURN(const bool has, store.Has(ChunkKey(name, chunk)));
    return has ? absl::OkStatus() : store.Write(ChunkKey(name, chunk), bytes);
  }));
  if (next < manifest.chunks.size())
    return absl::AbortedError(absl::StrCat(path, ": it changed while it was read"));
  RETURN_IF_ERROR(store.Write(ManifestKey(name), text));
  return name;
}

absl::Status GetArtifact(const Artifact& artifact, const std::string& path) {
  ASSIGN_OR_RETURN(PositionedFile file, PositionedFile::Create(path));
  RETURN_IF_ERROR(ReadWhole(artifact, [&](size_t chunk, absl::string_view bytes) {
    return file.Write(chunk * artifact.manifest().chunk_bytes, bytes);
  }));
  return file.Publish();
}

absl::Status CheckArtifact(const Artifact& artifact) {
  return ReadWhole(artifact, [](size_t, absl::string_view) { return absl::OkStatus(); });
}

absl::Status RemoveArtifact(ArtifactStore& store, const std::string& name) {
  RETURN_IF_ERROR(CheckArtifactName(name));
  const auto text = store.Read(ManifestKey(name), kMostManifestBytes, nullptr);
  const bool none = absl::IsNotFound(text.status());
  if (!text.ok() && !none && !absl::IsDataLoss(text.status())) return text.status();
  const bool whole = text.ok() && ArtifactNameOf(*text) == name;
  const auto manifest = ParseManifest(whole ? *text : "");
  size_t chunks = 0;
  if (manifest.ok()) {
    chunks = manifest->chunks.size();
  } else {
    ASSIGN_OR_RETURN(chunks, ChunksThere(store, name));
  }
  if (none && chunks == 0) {
    return absl::NotFoundError(
        absl::StrCat(name, ": there is no such artifact in ", store.where()));
  }
  RETURN_IF_ERROR(store.Remove(ManifestKey(name)));
  // From the last on, so that whoever finishes what was cut off finds all of them.
  while (chunks > 0) RETURN_IF_ERROR(store.Remove(ChunkKey(name, --chunks)));
  return absl::OkStatus();
}

}  // namespace stagewright
