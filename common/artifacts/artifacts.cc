#include "common/artifacts/artifacts.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/artifacts/artifact_name.h"

namespace stagewright {

std::string DefaultArtifactCache() {
  const char* folder = std::getenv("XDG_CACHE_HOME");
  if (folder != nullptr && *folder != '\0') return absl::StrCat(folder, "/stagewright/artifacts");
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return absl::StrCat(home, "/.cache/stagewright/artifacts");
  std::error_code unknown;
  return (std::filesystem::temp_directory_path(unknown) / "stagewright-artifacts").string();
}

absl::StatusOr<Artifacts> Artifacts::Open(const ArtifactOptions& options) {
  if (options.store.empty()) return Artifacts();
  ASSIGN_OR_RETURN(std::shared_ptr<ArtifactStore> store, OpenArtifactStore(options.store));
  Artifacts artifacts(
      std::move(store),
      std::filesystem::absolute(options.cache.empty() ? DefaultArtifactCache() : options.cache)
          .string());
  if (options.cache_mib > 0) {
    artifacts.cache_ = std::make_shared<ChunkCache>(artifacts.folder_,
                                                    static_cast<uint64_t>(options.cache_mib) << 20);
  }
  return artifacts;
}

absl::StatusOr<Artifact> Artifacts::Find(const std::string& name, GivenUp given_up) const {
  RETURN_IF_ERROR(CheckArtifactName(name));
  if (has_store()) return Artifact::Open(store_, cache_, name, std::move(given_up));
  return absl::FailedPreconditionError(
      absl::StrCat(name, ": there is no store of artifacts here: --artifacts names it"));
}

}  // namespace stagewright
