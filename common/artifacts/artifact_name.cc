#include "common/artifacts/artifact_name.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/artifacts/content_hash.h"

namespace stagewright {
namespace {

constexpr absl::string_view kPrefix = "sha256:";

}  // namespace

bool IsArtifactName(absl::string_view text) { return absl::StartsWith(text, kPrefix); }

absl::Status CheckArtifactName(absl::string_view text) {
  if (IsArtifactName(text) && IsContentHash(text.substr(kPrefix.size()))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is no artifact's name: sha256: and 64 digits 0-9a-f"));
}

std::string DigitsOf(absl::string_view name) { return std::string(name.substr(kPrefix.size())); }

std::string NameOfDigits(absl::string_view digits) { return absl::StrCat(kPrefix, digits); }

std::string ArtifactNameOf(absl::string_view manifest) {
  return NameOfDigits(ContentHash(manifest));
}

}  // namespace stagewright
