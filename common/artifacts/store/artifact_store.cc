#include "common/artifacts/store/artifact_store.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/artifacts/store/folder_store.h"
#include "common/artifacts/store/s3_store.h"

namespace stagewright {

bool IsBucket(absl::string_view where) { return absl::StartsWith(where, "s3://"); }

absl::StatusOr<std::shared_ptr<ArtifactStore>> OpenArtifactStore(const std::string& where) {
  if (IsBucket(where)) {
    ASSIGN_OR_RETURN(S3Settings settings, MakeS3Settings(where));
    return std::make_shared<S3Store>(std::move(settings));
  }
  if (absl::StrContains(where, "://")) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": artifacts are kept in a folder or in s3://BUCKET/PREFIX"));
  }
  return std::make_shared<FolderStore>(where);
}

}  // namespace stagewright
