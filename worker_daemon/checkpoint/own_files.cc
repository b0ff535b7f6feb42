#include "worker_daemon/checkpoint/own_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/base/failpoint.h"
#include "common/base/regular_file.h"

namespace stagewright {
namespace {

std::error_code SystemError() { return std::error_code(errno, std::generic_category()); }

// The names of our files in an open directory, which is at its beginning.
std::vector<std::string> OursIn(DIR* directory, bool (*is_ours)(absl::string_view)) {
  std::vector<std::string> ours;
  while (const dirent* entry = readdir(directory)) {
    struct stat status;
    if (is_ours(entry->d_name) &&
        fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(status.st_mode))
      ours.emplace_back(entry->d_name);
  }
  return ours;
}

}  // namespace

bool IsFileOrDraft(absl::string_view name, absl::string_view file) {
  if (!absl::ConsumePrefix(&name, file)) return false;
  return name.empty() || (name.front() == '.' && absl::EndsWith(name, ".tmp"));
}

bool IsFileOfDevice(absl::string_view name, absl::string_view prefix) {
  if (!absl::ConsumePrefix(&name, prefix)) return false;
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return digits > 0 && IsFileOrDraft(name.substr(digits), ".safetensors");
}

std::error_code RemoveOurs(const std::string& directory, bool (*is_ours)(absl::string_view),
                           const char* first) {
  std::error_code unknown;
  if (std::filesystem::is_symlink(directory, unknown)) return {};
  const int folder = OpenFolderToWrite(directory);
  DIR* entries = folder < 0 ? nullptr : fdopendir(folder);
  std::error_code error;
  if (entries == nullptr) {
    error = SystemError();
    if (folder >= 0) close(folder);
  } else {
    const auto remove = [&](const char* name) {
      if (unlinkat(folder, name, 0) != 0 && errno != ENOENT) error = SystemError();
    };
    if (first != nullptr) {
      remove(first);
      STAGEWRIGHT_FAILPOINT("checkpoint.remove.begun");
    }
    for (const std::string& file : OursIn(entries, is_ours)) {
      if (!error) remove(file.c_str());
    }
    closedir(entries);
    if (!error && rmdir(directory.c_str()) != 0 && errno != ENOTEMPTY) error = SystemError();
  }
  return error == std::errc::no_such_file_or_directory ? std::error_code() : error;
}

}  // namespace stagewright
