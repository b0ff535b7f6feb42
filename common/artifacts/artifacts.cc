#include "common/artifacts/artifacts.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/artifacts/artifact_name.h"
#include "common/artifacts/content_hash.h"

namespace stagewright {
namespace {

constexpr absl::string_view kNoStore = "there is no store of artifacts here: --artifacts names it";

}  // namespace

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
  return absl::FailedPreconditionError(absl::StrCat(name, ": ", kNoStore));
}

absl::StatusOr<std::vector<StoredArtifact>> Artifacts::List() const {
  if (!has_store()) return absl::FailedPreconditionError(kNoStore);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, store_->List(""));
  std::vector<StoredArtifact> found;
  for (absl::string_view digits : names) {
    if (!absl::ConsumeSuffix(&digits, "/") || !IsContentHash(digits)) continue;
    const std::string name = NameOfDigits(digits);
    const absl::StatusOr<Artifact> artifact = Find(name);
    if (absl::IsNotFound(artifact.status())) continue;
    const bool damaged =
        absl::IsDataLoss(artifact.status()) || absl::IsInvalidArgument(artifact.status());
    if (!artifact.ok() && !damaged) return artifact.status();
    found.push_back({name, artifact.ok() ? std::optional(artifact->size()) : std::nullopt});
  }
  return found;
}

}  // namespace stagewright
