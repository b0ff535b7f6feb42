// A file mapped for reading: its pages are read when they are looked at and given back when memory
// is short, so that a file may be larger than memory.
//
// A file that becomes shorter under a mapping ends the process that looks at what is gone. What is
// looked at long after opening is therefore read with Read, which says so instead.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/base/status.h"

namespace stagewright {

class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE if the file cannot be opened, INVALID_ARGUMENT if
  // it is not a regular file; each names it.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);

  // Takes the descriptor `file` over; `data` is its mapping.
  MappedFile(std::string path, int file, void* data, size_t size)
      : path_(std::move(path)), file_(file), data_(data), size_(size) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

  // Copies the bytes from `offset` on to all of `out`, not through the mapping. DATA_LOSS names a
  // file that cannot be read or has become shorter. Safe from any thread.
  absl::Status Read(size_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int file_;
  void* data_;
  size_t size_;
};

}  // namespace stagewright
