#include "clients/cli/files/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"

namespace stagewright::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;

absl::Status WriteInto(const std::string& path, std::string_view contents) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  while (file >= 0 && !contents.empty()) {
    const ssize_t written = write(file, contents.data(), contents.size());
    if (written < 0 && errno != EINTR) break;
    if (written > 0) contents.remove_prefix(static_cast<size_t>(written));
  }
  const bool whole = file >= 0 && contents.empty();
  const int error = errno;
  if (file >= 0) close(file);
  if (whole) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": cannot write: ", std::strerror(error)));
}

// Something is there, and it is neither a file nor a directory.
bool IsStream(const std::string& path) {
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  return fs::exists(there) && !fs::is_regular_file(there) && !fs::is_directory(there);
}

}  // namespace

absl::StatusOr<std::string> FileToReplace(const std::string& path) {
  if (IsStream(path))
    return absl::FailedPreconditionError(absl::StrCat(path, ": is there, and is no file"));
  fs::path target = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    if (!fs::is_symlink(fs::symlink_status(target, error))) return target.string();
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  return absl::FailedPreconditionError(absl::StrCat(path, ": is a link that leads nowhere"));
}

absl::Status WriteFile(const std::string& path, const std::string& contents) {
  if (IsStream(path)) return WriteInto(path, contents);
  ASSIGN_OR_RETURN(const std::string file, FileToReplace(path));
  const absl::Status status = WriteAtomically(file, {std::as_bytes(std::span(contents))});
  return status.ok() ? status : absl::FailedPreconditionError(status.message());
}

}  // namespace stagewright::cli
