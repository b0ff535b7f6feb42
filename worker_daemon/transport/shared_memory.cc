#include "worker_daemon/transport/shared_memory.h"

#include <sys/statvfs.h>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"

namespace stagewright {

absl::Status NamingFullSharedMemory(const absl::Status& error, Bytes needed,
                                    const std::string& folder) {
  struct statvfs room;
  if (error.ok() || statvfs(folder.c_str(), &room) != 0) return error;
  const auto bytes = [&](fsblkcnt_t blocks) {
    return Bytes(static_cast<int64_t>(blocks) * static_cast<int64_t>(room.f_frsize));
  };
  if (bytes(room.f_bavail) >= needed) return error;
  return WithStorageFault(absl::UnavailableError(
      absl::StrCat(folder, " is full: ", FormatBytes(bytes(room.f_bavail)), " of ",
                   FormatBytes(bytes(room.f_blocks)), " are free, up to ", FormatBytes(needed),
                   " are needed: ", error.message())));
}

}  // namespace stagewright
