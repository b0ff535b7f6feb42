#include "worker_daemon/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

absl::Status OpenError(const std::string& path) {
  const std::string message = absl::StrCat(path, ": ", std::strerror(errno));
  if (errno == ENOENT) return absl::NotFoundError(message);
  if (errno == EACCES) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

}  // namespace

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return OpenError(path);
  struct stat status;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(file);
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* data = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const absl::Status mapped = data == MAP_FAILED ? OpenError(path) : absl::OkStatus();
  close(file);
  RETURN_IF_ERROR(mapped);
  return std::make_shared<const MappedFile>(data, size);
}

}  // namespace stagewright
