#include "common/artifacts/positioned_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

absl::Status SystemError(const std::string& path) {
  const std::string message = absl::StrCat(path, ": ", std::strerror(errno));
  if (errno == ENOENT) return absl::NotFoundError(message);
  if (errno == EACCES || errno == EROFS) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

// What a file has that programs make.
mode_t UsualMode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

PositionedFile::PositionedFile(std::string path, std::string temporary, int file)
    : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}

PositionedFile::PositionedFile(PositionedFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, "")),
      file_(std::exchange(other.file_, -1)) {}

PositionedFile::~PositionedFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
  if (file_ >= 0) close(file_);
}

absl::StatusOr<PositionedFile> PositionedFile::Create(const std::string& path) {
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  const int file = mkostemp(temporary.data(), O_CLOEXEC);
  if (file < 0) return SystemError(path);
  return PositionedFile(path, std::move(temporary), file);
}

absl::Status PositionedFile::Write(uint64_t offset, absl::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(path_);
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status PositionedFile::Publish() {
  if (fchmod(file_, UsualMode()) != 0 || fsync(file_) != 0 ||
      rename(temporary_.c_str(), path_.c_str()) != 0)
    return SystemError(path_);
  temporary_.clear();
  return absl::OkStatus();
}

absl::Status PositionedFile::Unname() {
  if (unlink(temporary_.c_str()) != 0) return SystemError(temporary_);
  temporary_.clear();
  return absl::OkStatus();
}

std::string PositionedFile::OpenPath() const { return absl::StrCat("/proc/self/fd/", file_); }

}  // namespace stagewright
