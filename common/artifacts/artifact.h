// An artifact in a store: its manifest, and chunks of it as somebody asks for them. In the store it
// is the object DIGITS/manifest.json, which is written last, beside DIGITS/chunk-000000 and so on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/artifacts/chunk_cache.h"
#include "common/artifacts/manifest.h"
#include "common/artifacts/store/artifact_store.h"
#include "common/base/status.h"

namespace stagewright {

// Errors name the artifact, and the store's say where it is.
class Artifact {
 public:
  // Reads the manifest. `cache` may be null. INVALID_ARGUMENT if `name` is none; NOT_FOUND if the
  // store has no such artifact; DATA_LOSS if its manifest is damaged; errors of
  // ArtifactStore::Read.
  static absl::StatusOr<Artifact> Open(std::shared_ptr<const ArtifactStore> store,
                                       std::shared_ptr<ChunkCache> cache, const std::string& name,
                                       GivenUp given_up = nullptr);

  const std::string& name() const { return name_; }
  const ArtifactManifest& manifest() const { return manifest_; }
  uint64_t size() const { return manifest_.size; }

  // The bytes from `offset` on to all of `out`. DATA_LOSS if a chunk of them is missing, or is not
  // what the manifest says, or if there are not as many; errors of ArtifactStore::Read.
  absl::Status Read(uint64_t offset, std::span<std::byte> out) const;

  // Hands each of the chunks to `take`, several at a time from several threads, in no order. Ends
  // with its first error, or the first of Read.
  using TakeChunk = std::function<absl::Status(size_t chunk, absl::string_view bytes)>;
  absl::Status ForEachChunk(const std::vector<size_t>& chunks, const TakeChunk& take) const;

  // Bytes that came from the store so far, the manifest's among them.
  uint64_t fetched_bytes() const { return fetched_->load(); }

 private:
  absl::StatusOr<std::string> Chunk(size_t chunk) const;

  std::shared_ptr<const ArtifactStore> store_;
  std::shared_ptr<ChunkCache> cache_;
  GivenUp given_up_;
  std::string name_;
  ArtifactManifest manifest_;
  std::shared_ptr<std::atomic<uint64_t>> fetched_;
};

}  // namespace stagewright
