// The artifacts of a program: the one store that it is told of, and what it keeps of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/artifacts/artifact.h"
#include "common/base/status.h"

namespace stagewright {

struct ArtifactOptions {
  std::string store;          // A folder or "s3://BUCKET/PREFIX"; empty: none.
  std::string cache;          // Folder of the cache; empty: DefaultArtifactCache().
  int64_t cache_mib = 16384;  // 0: nothing is kept.
};

// "stagewright/artifacts" in $XDG_CACHE_HOME or ~/.cache, or in the directory for temporary files
// where there is neither.
std::string DefaultArtifactCache();

struct StoredArtifact {
  std::string name;
  std::optional<uint64_t> size;  // Nothing: its manifest is damaged, or is none.
};

// Copies are the same.
class Artifacts {
 public:
  // None: asked for an artifact, it says which flag is missing.
  Artifacts() = default;
  // INVALID_ARGUMENT if the store is none; errors of OpenArtifactStore. Whether it answers is known
  // once it is asked.
  static absl::StatusOr<Artifacts> Open(const ArtifactOptions& options);
  // Those of a store of which nothing is kept. REQUIRES: `folder` is absolute.
  Artifacts(std::shared_ptr<ArtifactStore> store, std::string folder)
      : store_(std::move(store)), folder_(std::move(folder)) {}

  bool has_store() const { return store_ != nullptr; }
  // REQUIRES: has_store().
  ArtifactStore& store() const { return *store_; }
  // FAILED_PRECONDITION without a store; errors of Artifact::Open.
  absl::StatusOr<Artifact> Find(const std::string& name, GivenUp given_up = nullptr) const;
  // All that have a manifest in the store, damaged ones too, by name; what was put in part is left
  // out. Reads the manifest of each, one after the other. Errors of Find and ArtifactStore::List.
  absl::StatusOr<std::vector<StoredArtifact>> List() const;
  // Where parts of artifacts are for as long as they are used.
  const std::string& folder() const { return folder_; }

 private:
  std::shared_ptr<ArtifactStore> store_;
  std::shared_ptr<ChunkCache> cache_;  // Null: nothing is kept.
  std::string folder_;
};

}  // namespace stagewright
