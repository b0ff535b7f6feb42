#include "worker_daemon/transport/shared_memory.h"

#include <sys/statvfs.h>

#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/status.h"

namespace stagewright {
namespace {

// With UCX's own settings: 512 buffers of 8 KiB.
constexpr Bytes kTakenAtATime = 4'292'720;

// Nothing if the folder has the room that is needed, or cannot be asked.
std::optional<std::string> Lacks(const std::string& folder, Bytes needed) {
  struct statvfs room;
  if (statvfs(folder.c_str(), &room) != 0) return std::nullopt;
  const auto bytes = [&](fsblkcnt_t blocks) {
    return Bytes(static_cast<int64_t>(blocks) * static_cast<int64_t>(room.f_frsize));
  };
  if (bytes(room.f_bavail) >= needed) return std::nullopt;
  return absl::StrCat(folder, " is full: ", FormatBytes(bytes(room.f_bavail)), " of ",
                      FormatBytes(bytes(room.f_blocks)), " are free, up to ", FormatBytes(needed),
                      " are needed");
}

}  // namespace

std::string SharedMemoryOfUcx() {
  const char* folder = std::getenv("UCX_POSIX_DIR");
  return folder == nullptr ? kSharedMemory : folder;
}

absl::Status NamingFullSharedMemory(const absl::Status& error, Bytes needed,
                                    const std::string& folder) {
  if (error.ok()) return error;
  const auto lacks = Lacks(folder, needed);
  if (!lacks.has_value()) return error;
  return WithStorageFault(absl::UnavailableError(absl::StrCat(*lacks, ": ", error.message())));
}

absl::Status NotingFullSharedMemory(const absl::Status& error, const std::string& folder) {
  if (error.ok()) return error;
  const auto lacks = Lacks(folder, kTakenAtATime);
  if (!lacks.has_value()) return error;
  return WithMessage(
      error, absl::StrCat(error.message(),
                          "; messages between processes of this machine may be lost: ", *lacks));
}

}  // namespace stagewright
