#include "clients/cli/files/write_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace stagewright::cli {

absl::Status WriteFile(const std::string& path, const std::string& contents) {
  const std::string temporary = path + ".tmp";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << contents;
  out.close();
  if (!out || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const absl::Status status =
        absl::FailedPreconditionError(absl::StrCat(path, ": cannot write: ", std::strerror(errno)));
    std::remove(temporary.c_str());
    return status;
  }
  return absl::OkStatus();
}

}  // namespace stagewright::cli
