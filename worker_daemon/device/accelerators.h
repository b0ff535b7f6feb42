// GPUs that this build and this machine can use.
#pragma once

#include <string>
#include <vector>

#include "common/base/units.h"

namespace stagewright {

struct Accelerator {
  std::string name;  // "NVIDIA H200"
  Bytes memory = 0;  // In all.
};

// By CUDA's index; empty in a build without CUDA or without a GPU.
std::vector<Accelerator> Accelerators();

}  // namespace stagewright
