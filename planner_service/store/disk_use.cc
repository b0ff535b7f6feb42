#include "planner_service/store/disk_use.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"

namespace stagewright {

DiskUse DiskUseOf(const std::string& state) {
  if (state == ":memory:") return {};
  DiskUse use;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(state, error);
  const auto space = std::filesystem::space(path.parent_path(), error);
  if (!error) use.free_bytes = static_cast<int64_t>(space.available);
  const std::string name = path.filename().string();
  // The write-ahead log and its index: NAME-wal, NAME-shm.
  for (auto it = std::filesystem::directory_iterator(path.parent_path(), error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string other = it->path().filename().string();
    if (other != name && !absl::StartsWith(other, name + "-")) continue;
    std::error_code gone;
    const auto size = it->file_size(gone);
    if (!gone) use.used_bytes += static_cast<int64_t>(size);
  }
  return use;
}

}  // namespace stagewright
