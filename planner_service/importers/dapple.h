// Profiles as DAPPLE's planner reads them (profile_text.h).
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "planner_service/importers/profile.h"

namespace stagewright {

// As ImportProfile (profile.h) of this format.
absl::StatusOr<ImportedProfile> ImportDapple(std::string_view text, const std::string& file,
                                             const ImportOptions& options = {});

}  // namespace stagewright
