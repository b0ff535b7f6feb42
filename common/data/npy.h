// Reading `.npy` files, NumPy's format of one array: a magic string, a version, the length of a
// header that is a Python dictionary, and the bytes
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/data/mapped_file.h"
#include "common/data/safetensors.h"

namespace stagewright {

struct NpyFile {
  TensorView array;  // Its name is the file's path; valid while `mapping` is held.
  std::shared_ptr<const MappedFile> mapping;

  // Versions 1 to 3 of the format; arrays in C order, little-endian, of types that tensors have
  // (not bfloat16, which NumPy lacks). Errors of MappedFile::Open; INVALID_ARGUMENT, naming the
  // file, for anything else.
  static absl::StatusOr<NpyFile> Open(const std::string& path);
};

}  // namespace stagewright
