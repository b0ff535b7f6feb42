// Files for tests of data and checkpoints.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/data/safetensors_writer.h"

namespace stagewright::testing {

// A directory that is gone with the test.
class TempDirectory {
 public:
  TempDirectory() {
    static int count = 0;
    path_ = std::filesystem::path(::testing::TempDir()) /
            ("stagewright-data-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  std::string File(const std::string& name) const { return path_ / name; }
  // Names of the files in it, sorted.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path path_;
};

template <typename T>
TensorView View(std::string name, DType dtype, std::vector<int64_t> shape,
                const std::vector<T>& values) {
  return {std::move(name),
          dtype,
          std::move(shape),
          {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)}};
}

template <typename T>
std::vector<T> Values(const TensorView& view) {
  std::vector<T> values(view.data.size() / sizeof(T));
  std::memcpy(values.data(), view.data.data(), view.data.size());
  return values;
}

inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A file with that header and that many bytes of data.
inline void WriteRaw(const std::string& path, const std::string& header, size_t data_bytes) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(header.size() >> shift);
  WriteBytes(path, bytes + header + std::string(data_bytes, '\1'));
}

}  // namespace stagewright::testing
