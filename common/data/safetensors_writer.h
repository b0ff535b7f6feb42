// Writing `.safetensors` files atomically: after a crash the old file or the new one is there,
// whole.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/data/safetensors.h"

namespace stagewright {

// Writes the tensors, in name order, under a temporary name beside `path`, syncs and renames.
// INVALID_ARGUMENT, naming the tensor, if a name is used twice or the bytes do not fit type and
// shape; errors of WriteAtomically.
absl::Status WriteSafetensors(const std::string& path, std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace stagewright
