#include "worker_daemon/daemon/places/own_directories.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPatience(5);

// What is to be said of it; empty: nothing.
absl::StatusOr<std::string> LookAt(const OwnDirectory& directory) {
  const std::string name = absl::StrCat(directory.flag, " ", directory.path, ": ");
  const std::string fails =
      directory.written ? "; jobs that write there fail" : "; jobs that read there fail";
  std::error_code error;
  const fs::file_status status = fs::status(directory.path, error);
  if (status.type() == fs::file_type::not_found) {
    if (directory.made) return "";
    return absl::StrCat(name, "there is no such directory",
                        directory.written ? ": the first job makes it, if it may" : fails);
  }
  if (error) return absl::StrCat(name, error.message(), fails);
  if (status.type() != fs::file_type::directory)
    return absl::InvalidArgumentError(absl::StrCat(name, "it is no directory"));
  if (access(directory.path.c_str(), directory.written ? W_OK | X_OK : R_OK | X_OK) == 0) return "";
  return absl::StrCat(name, std::strerror(errno), fails);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> LookAt(const std::vector<OwnDirectory>& directories) {
  std::vector<std::string> lines;
  for (const OwnDirectory& directory : directories) {
    if (directory.path.empty()) continue;
    // What hangs in a file system cannot be waited for.
    auto looked = std::make_shared<std::promise<absl::StatusOr<std::string>>>();
    std::future<absl::StatusOr<std::string>> found = looked->get_future();
    std::thread([directory, looked] { looked->set_value(LookAt(directory)); }).detach();
    if (found.wait_for(kPatience) != std::future_status::ready) {
      lines.push_back(absl::StrCat(directory.flag, " ", directory.path, ": it does not answer"));
      continue;
    }
    ASSIGN_OR_RETURN(std::string line, found.get());
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace stagewright
