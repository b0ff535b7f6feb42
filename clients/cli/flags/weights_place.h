// What workers are told of weights that the command line names.
#pragma once

#include <filesystem>
#include <string>

#include "common/artifacts/artifact_name.h"

namespace stagewright::cli {

// An artifact's name as it is; paths travel absolute, for workers may run in other directories.
inline std::string WeightsPlace(const std::string& given) {
  if (given.empty() || IsArtifactName(given)) return given;
  return std::filesystem::absolute(given).string();
}

}  // namespace stagewright::cli
