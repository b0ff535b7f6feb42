#include "common/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/failpoint.h"
#include "common/base/regular_file.h"

namespace stagewright {
namespace {

absl::Status SystemError(const std::string& path, const char* what) {
  if (errno == EFAULT) {  // The end of a mapping's file.
    return absl::DataLossError(absl::StrCat(path, ": cannot ", what,
                                            ": a file that is copied into it ",
                                            "has become shorter since it was opened"));
  }
  if (errno == EXDEV) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": leads out of the directories that jobs may use"));
  }
  const std::string message = absl::StrCat(path, ": cannot ", what, ": ", std::strerror(errno));
  return errno == ENOENT ? absl::NotFoundError(message)
                         : WithSystemError(absl::UnavailableError(message), errno);
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

// That of the file that is to be replaced, if there is one.
mode_t ModeOf(int folder, const std::string& name) {
  struct stat there = {};
  const bool file =
      fstatat(folder, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(there.st_mode);
  return file ? there.st_mode & 0777 : 0;
}

// Messages name `path`, which is what the caller knows.
absl::Status WriteFile(int folder, const std::string& temporary, const std::string& path,
                       const std::vector<std::span<const std::byte>>& pieces, mode_t mode) {
  const int file = openat(folder, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                          mode == 0 ? 0644 : 0600);
  if (file < 0) return SystemError(path, "write");
  if (mode != 0) fchmod(file, mode);  // Some file systems have none.
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

absl::Status MakeDirectories(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error) return absl::OkStatus();
  const std::string message = absl::StrCat("cannot make ", directory, ": ", error.message());
  absl::Status failed = WithSystemError(absl::UnavailableError(message), error.value());
  return IsOfStorage(failed) ? failed : absl::FailedPreconditionError(message);
}

absl::Status SyncDirectory(const std::string& directory) {
  const int folder = OpenFolderToWrite(directory);
  if (folder < 0) return SystemError(directory, "write");
  absl::Status status = fsync(folder) == 0 ? absl::OkStatus() : SystemError(directory, "sync");
  close(folder);
  return status;
}

// In one folder from beginning to end, wherever its name leads meanwhile.
absl::Status WriteAtomically(const std::string& path,
                             const std::vector<std::span<const std::byte>>& pieces) {
  const std::filesystem::path target(path);
  const std::string directory = target.parent_path().string(), name = target.filename().string();
  const int folder = OpenFolderToWrite(directory);
  if (folder < 0) return SystemError(path, "write");
  const std::string temporary = TemporaryName(name);
  absl::Status status = WriteFile(folder, temporary, path, pieces, ModeOf(folder, name));
  STAGEWRIGHT_FAILPOINT("file.rename.before");
  if (status.ok() && renameat(folder, temporary.c_str(), folder, name.c_str()) != 0) {
    status = SystemError(path, "write");
  }
  if (!status.ok()) unlinkat(folder, temporary.c_str(), 0);
  if (status.ok()) {
    STAGEWRIGHT_FAILPOINT("file.rename.after");
    // The rename itself is durable once the directory is.
    if (fsync(folder) != 0) status = SystemError(directory, "sync");
  }
  close(folder);
  return status;
}

}  // namespace stagewright
