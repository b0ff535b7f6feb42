// A file mapped for reading: its pages are read when they are looked at and given back when memory
// is short, so that a file may be larger than memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/base/status.h"

namespace stagewright {

class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE if the file cannot be opened, INVALID_ARGUMENT if
  // it is not a regular file; each names it.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);

  MappedFile(void* data, size_t size) : data_(data), size_(size) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_;
  size_t size_;
};

}  // namespace stagewright
