// What artifacts are called: "sha256:" and the 64 hexadecimal digits of the SHA-256 of the manifest
// (manifest.h). A name is known to be well formed before anything else is done with it.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace stagewright {

// It is meant as a name and not as a path: it begins as names do.
bool IsArtifactName(absl::string_view text);

// INVALID_ARGUMENT unless it is a name, in lower case.
absl::Status CheckArtifactName(absl::string_view text);

// REQUIRES: `name` is one.
std::string DigitsOf(absl::string_view name);

// The other way round. REQUIRES: IsContentHash(digits).
std::string NameOfDigits(absl::string_view digits);

// The name of what has this manifest.
std::string ArtifactNameOf(absl::string_view manifest);

}  // namespace stagewright
