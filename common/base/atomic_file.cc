#include "common/base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/failpoint.h"

namespace stagewright {
namespace {

absl::Status SystemError(const std::string& path, const char* what) {
  if (errno == EFAULT) {  // The end of a mapping's file.
    return absl::DataLossError(absl::StrCat(path, ": cannot ", what,
                                            ": a file that is copied into it ",
                                            "has become shorter since it was opened"));
  }
  const std::string message = absl::StrCat(path, ": cannot ", what, ": ", std::strerror(errno));
  return errno == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

bool WriteAll(int file, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written =
        write(file, data.data(), std::min<size_t>(data.size(), size_t{1} << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    data = data.subspan(static_cast<size_t>(written));
  }
  return true;
}

// Messages name `path`, which is what the caller knows.
absl::Status WriteFile(const std::string& temporary, const std::string& path,
                       const std::vector<std::span<const std::byte>>& pieces) {
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return SystemError(path, "write");
  bool written = true;
  for (std::span<const std::byte> piece : pieces) written = written && WriteAll(file, piece);
  absl::Status status;
  if (!written) {
    status = SystemError(path, "write");
  } else if (fsync(file) != 0) {
    status = SystemError(path, "sync");
  }
  if (close(file) != 0 && status.ok()) status = SystemError(path, "write");
  return status;
}

// Nobody else's: workers of a job write the same files, and in containers all of them are
// process 1.
std::string TemporaryName(const std::string& path) {
  std::random_device random;
  return absl::StrCat(path, ".", absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8), ".tmp");
}

}  // namespace

absl::Status SyncDirectory(const std::string& directory) {
  const int file =
      open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return SystemError(directory, "write");
  absl::Status status = fsync(file) == 0 ? absl::OkStatus() : SystemError(directory, "sync");
  close(file);
  return status;
}

absl::Status WriteAtomically(const std::string& path,
                             const std::vector<std::span<const std::byte>>& pieces) {
  const std::string temporary = TemporaryName(path);
  absl::Status status = WriteFile(temporary, path, pieces);
  STAGEWRIGHT_FAILPOINT("file.rename.before");
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = SystemError(path, "write");
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  STAGEWRIGHT_FAILPOINT("file.rename.after");
  // The rename itself is durable once the directory is.
  return SyncDirectory(std::filesystem::path(path).parent_path().string());
}

}  // namespace stagewright
