// Flags of artifacts: the store, which workers and the command line have, and what workers keep.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "common/artifacts/artifacts.h"

namespace stagewright {

inline void AddArtifactStoreFlag(CLI::App& app, std::string& store) {
  app.add_option("--artifacts", store,
                 "where artifacts (sha256:...) are: a folder, or s3://BUCKET/PREFIX with the AWS "
                 "variables of the environment (default: no artifacts)");
}

inline void AddArtifactCacheFlags(CLI::App& app, ArtifactOptions& options) {
  app.add_option("--artifact-cache", options.cache,
                 "folder for what was read of artifacts, which workers of a machine may share "
                 "(default: stagewright/artifacts in $XDG_CACHE_HOME or ~/.cache)");
  app.add_option("--artifact-cache-mib", options.cache_mib,
                 "about the most that is kept there; 0: nothing")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
}

}  // namespace stagewright
