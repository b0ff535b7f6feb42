// Profiles as Piper's optimizer reads them: JSON.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "planner_service/importers/profile.h"

namespace stagewright {

// As ImportProfile (profile.h) of this format.
absl::StatusOr<ImportedProfile> ImportPiper(std::string_view text, const std::string& file,
                                            const ImportOptions& options = {});

}  // namespace stagewright
