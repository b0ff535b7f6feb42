#include "common/data/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/regular_file.h"

namespace stagewright {

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
  close(file_);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int file, OpenRegularFile(path));
  struct stat status;
  if (fstat(file, &status) != 0) {
    const absl::Status failed =
        absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
    close(file);
    return failed;
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* data = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) {
    const absl::Status failed =
        absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
    close(file);
    return failed;
  }
  return std::make_shared<const MappedFile>(path, file, data, size);
}

absl::Status MappedFile::Read(size_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = pread(file_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::DataLossError(absl::StrCat(path_, ": ", std::strerror(errno)));
    if (count == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": it had ", size_,
                                              " bytes when it was opened, and ends at byte ",
                                              offset, " or before now"));
    }
    offset += static_cast<size_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace stagewright
