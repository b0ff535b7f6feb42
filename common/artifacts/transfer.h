// Whole artifacts into a store, out of it and away.
#pragma once

#include <cstdint>
#include <string>

#include "common/artifacts/artifact.h"
#include "common/artifacts/store/artifact_store.h"
#include "common/base/status.h"

namespace stagewright {

// Puts a file into the store, unless it is there, and returns its name. Whoever puts it again after
// this was cut off writes what is missing. `chunk_bytes` 0: ChunkBytesFor. Errors of
// OpenRegularFile and ArtifactStore; ABORTED if the file changes meanwhile.
absl::StatusOr<std::string> PutArtifact(ArtifactStore& store, const std::string& path,
                                        uint64_t chunk_bytes = 0);

// The artifact as a file, whole: atomically, in the place of what was there.
absl::Status GetArtifact(const Artifact& artifact, const std::string& path);

// Reads all of it; errors of Artifact::Read.
absl::Status CheckArtifact(const Artifact& artifact);

// The artifact is there no more; the manifest first, so that it is never there in part. Without a
// manifest, or with a damaged one, the chunks go from the first to one that is not there: what a
// put or remove that was cut off has left. INVALID_ARGUMENT if `name` is none; NOT_FOUND if there
// is neither manifest nor chunk; errors of ArtifactStore.
absl::Status RemoveArtifact(ArtifactStore& store, const std::string& name);

}  // namespace stagewright
