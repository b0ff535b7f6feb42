// Under which keys a store has an artifact. REQUIRES: names are well formed (artifact_name.h).
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/artifacts/artifact_name.h"

namespace stagewright {

inline std::string ManifestKey(absl::string_view name) {
  return absl::StrCat(DigitsOf(name), "/manifest.json");
}

inline std::string ChunkKey(absl::string_view name, size_t chunk) {
  return absl::StrFormat("%s/chunk-%06d", DigitsOf(name), chunk);
}

}  // namespace stagewright
