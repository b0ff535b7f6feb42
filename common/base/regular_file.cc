#include "common/base/regular_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error_details.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = size_t{1} << 20;

absl::Status OpenError(const std::string& path) {
  const std::string message = absl::StrCat(path, ": ", std::strerror(errno));
  if (errno == ENOENT) return absl::NotFoundError(message);
  if (errno == EXDEV) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": leads out of the directories that jobs may use"));
  }
  if (errno == EACCES) return absl::PermissionDeniedError(message);
  return WithSystemError(absl::UnavailableError(message), errno);
}

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

FileRoots& Confined() {
  static FileRoots roots;
  return roots;
}

// Absolute, without "." and "..", and without a separator at its end.
fs::path Normal(const fs::path& path) {
  std::error_code error;
  const fs::path normal = fs::absolute(path, error).lexically_normal();
  return normal.has_filename() || !normal.has_relative_path() ? normal : normal.parent_path();
}

// A descriptor, or -errno.
int OpenBeneath(int directory, const fs::path& path, int flags) {
  constexpr int kTries = 16;  // A ".." may meet a directory that is just moved.
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  for (int i = 1;; ++i) {
    const int64_t file = syscall(SYS_openat2, directory, path.c_str(), &how, sizeof(how));
    if (file >= 0) return static_cast<int>(file);
    if (errno != EAGAIN || i == kTries) return -errno;
  }
}

// The way from the directory to the place by their names; nothing if it is not below it.
std::optional<fs::path> Below(const fs::path& directory, const fs::path& place) {
  const auto [end, rest] =
      std::mismatch(directory.begin(), directory.end(), place.begin(), place.end());
  if (end != directory.end()) return std::nullopt;
  fs::path below = ".";
  for (auto part = rest; part != place.end(); ++part) below /= *part;
  return below;
}

// What `path` names below one of the roots, if it names anything there: a descriptor, or -errno,
// EXDEV if it leads out.
std::optional<int> OpenBelow(const std::vector<std::string>& roots, const fs::path& path,
                             int flags) {
  std::optional<int> opened;
  for (const std::string& root : NamedFirst(roots, path)) {
    const std::optional<fs::path> below = PathBelow(root, path);
    if (!below.has_value()) continue;
    const int directory = open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return -errno;
    opened = OpenBeneath(directory, *below, flags);
    close(directory);
    if (opened != -EXDEV) break;
  }
  return opened;
}

// A link may lead from below one root to below another, or back by its full name: where it leads
// is opened in the same way then. A descriptor, or negative with errno.
int OpenConfined(const std::vector<std::string>& roots, const std::string& path, int flags) {
  std::optional<int> opened = OpenBelow(roots, path, flags);
  if (!opened.has_value()) return open(path.c_str(), flags);
  if (opened == -EXDEV) {
    std::error_code error;
    opened = OpenBelow(roots, fs::weakly_canonical(path, error), flags).value_or(-EXDEV);
  }
  if (*opened >= 0) return *opened;
  errno = -*opened;
  return -1;
}

}  // namespace

std::optional<fs::path> PathBelow(const std::string& root, const fs::path& path) {
  const fs::path place = Normal(path);
  if (std::optional<fs::path> below = Below(Normal(root), place)) return below;
  std::error_code error;
  const fs::path target = Normal(fs::weakly_canonical(root, error));
  if (target.empty()) return std::nullopt;  // Where the root leads cannot be said now.
  return Below(target, place);
}

std::vector<std::string> NamedFirst(std::vector<std::string> roots, const fs::path& path) {
  const fs::path place = Normal(path);
  std::stable_partition(roots.begin(), roots.end(), [&](const std::string& root) {
    return Below(Normal(root), place).has_value();
  });
  return roots;
}

bool ConfineFiles(FileRoots roots) {
  if (!roots.read.empty() || !roots.write.empty()) {
    const int probe = OpenBeneath(AT_FDCWD, ".", O_PATH | O_CLOEXEC);
    if (probe < 0) return false;
    close(probe);
  }
  Confined() = std::move(roots);
  return true;
}

int OpenFolderToWrite(const std::string& path) {
  return OpenConfined(Confined().write, path.empty() ? "." : path,
                      O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

absl::StatusOr<int> OpenRegularFile(const std::string& path) {
  const int file =
      OpenConfined(Confined().read, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return OpenError(path);
  struct stat status;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) return file;
  close(file);
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": not a regular file but ", KindOf(status.st_mode)));
}

absl::Status ReadRegularFile(const std::string& path,
                             const std::function<void(std::span<const char>)>& take) {
  ASSIGN_OR_RETURN(const int file, OpenRegularFile(path));
  std::vector<char> block(kBlock);
  while (true) {
    const ssize_t count = read(file, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const absl::Status failed = WithSystemError(
          absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno))), errno);
      close(file);
      return failed;
    }
    if (count == 0) break;
    take(std::span<const char>(block).first(static_cast<size_t>(count)));
  }
  close(file);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t most) {
  std::error_code unknown;
  const uintmax_t bytes = std::filesystem::file_size(path, unknown);
  if (!unknown && bytes > most)
    return absl::DataLossError(absl::StrCat(path, ": it has ", bytes, " bytes, more than ", most));
  std::string text;
  RETURN_IF_ERROR(ReadRegularFile(
      path, [&text](std::span<const char> block) { text.append(block.data(), block.size()); }));
  return text;
}

}  // namespace stagewright
