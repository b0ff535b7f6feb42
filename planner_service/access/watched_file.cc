#include "planner_service/access/watched_file.h"

#include <sys/stat.h>

#include "common/base/regular_file.h"
#include "common/base/text_file.h"
#include "common/log/log.h"

namespace stagewright {

std::string VersionOfFile(const std::string& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0) return "";
  return absl::StrCat(file.st_ino, " ", file.st_size, " ", file.st_mtim.tv_sec, " ",
                      file.st_mtim.tv_nsec);
}

absl::StatusOr<std::string> ReadFlagFile(const std::string& flag, const std::string& path) {
  auto text = ReadSmallFile(path, kLargestTextFile);
  if (!text.ok())
    return absl::FailedPreconditionError(absl::StrCat(flag, " ", text.status().message()));
  return std::string(WithoutByteOrderMark(*text));
}

void WarnOfFile(const absl::Status& wrong) {
  Log(LogLevel::kWarning, absl::StrCat(wrong.message(), "; what it said before stays valid"));
}

}  // namespace stagewright
