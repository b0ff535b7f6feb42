// `.npy` files as NumPy writes them.
#pragma once

#include <string>
#include <vector>

#include "tests/common/data/safetensors_files.h"

namespace stagewright::testing {

// The bytes of a file of that version with that header; the length is padded as NumPy pads it.
inline std::string NpyBytes(std::string header, const std::string& data, int version = 1) {
  const size_t prefix = version == 1 ? 10 : 12;
  while ((prefix + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
  for (size_t i = 0; i < prefix - 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

inline std::string NpyHeader(const std::string& type, const std::string& shape,
                             bool fortran = false) {
  return "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }";
}

template <typename T>
void WriteNpy(const std::string& path, const std::string& type, const std::string& shape,
              const std::vector<T>& values, int version = 1) {
  const std::string data(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  WriteBytes(path, NpyBytes(NpyHeader(type, shape), data, version));
}

}  // namespace stagewright::testing
