#include "common/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

namespace stagewright {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

absl::Status OpenError(const std::string& path) {
  const std::string message = absl::StrCat(path, ": ", std::strerror(errno));
  if (errno == ENOENT) return absl::NotFoundError(message);
  if (errno == EACCES) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

}  // namespace

absl::StatusOr<int> OpenRegularFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
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
      const absl::Status failed =
          absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
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
