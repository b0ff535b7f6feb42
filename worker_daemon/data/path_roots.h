// The directories of a machine that jobs may read from and write to.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

// Empty: anywhere.
struct PathRoots {
  std::string data;    // Weights and data are read from it, or from `output`.
  std::string output;  // Checkpoints are written to it.
};

// Has the process open what jobs read and write below the roots only, though links are swapped
// after the checks below. False if the system cannot. See ConfineFiles
// (common/base/regular_file.h).
bool ConfineTo(const PathRoots& roots);

// PERMISSION_DENIED, naming the field and the worker's flag, if a job that reads there would leave
// the roots: through "..", a symbolic link, or at once; a link elsewhere that leads into them is
// outside, too. It is the same whether there is such a file or not. An empty path is none.
absl::Status CheckReads(const PathRoots& roots, absl::string_view field, const std::string& path);
// The same for a job that writes there.
absl::Status CheckWrites(const PathRoots& roots, absl::string_view field, const std::string& path);
// The same for all files of a data set (common/data/data_files.h) that has these inputs.
absl::Status CheckReadsData(const PathRoots& roots, absl::string_view field,
                            const std::string& path, const std::vector<std::string>& inputs);

}  // namespace stagewright
