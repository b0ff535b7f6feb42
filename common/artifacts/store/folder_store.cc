#include "common/artifacts/store/folder_store.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/regular_file.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

absl::Status Refused(const std::string& path, const std::error_code& error) {
  const std::string message = absl::StrCat(path, ": ", error.message());
  return error == std::errc::permission_denied ? absl::PermissionDeniedError(message)
                                               : absl::UnavailableError(message);
}

}  // namespace

// Who changes into another directory later still means this one.
FolderStore::FolderStore(const std::string& folder) : folder_(fs::absolute(folder).string()) {}

std::string FolderStore::PathOf(const std::string& key) const {
  return absl::StrCat(folder_, "/", key);
}

// A folder that is not mounted is another matter than an object that is not in it.
absl::Status FolderStore::CheckMounted() const {
  std::error_code error;
  if (fs::is_directory(folder_, error)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(folder_, ": ", error ? error.message() : "no directory"));
}

absl::StatusOr<std::string> FolderStore::Read(const std::string& key, size_t most,
                                              const GivenUp& given_up) const {
  if (given_up && given_up()) return absl::CancelledError("given up");
  RETURN_IF_ERROR(CheckMounted());
  return ReadSmallFile(PathOf(key), most);
}

absl::StatusOr<bool> FolderStore::Has(const std::string& key) const {
  std::error_code error;
  const bool found = fs::is_regular_file(PathOf(key), error);
  if (!error || error == std::errc::no_such_file_or_directory) return found;
  return Refused(PathOf(key), error);
}

absl::StatusOr<std::vector<std::string>> FolderStore::List(const std::string& prefix) const {
  RETURN_IF_ERROR(CheckMounted());
  const std::string path = PathOf(prefix);
  std::vector<std::string> names;
  std::error_code error;
  // What goes meanwhile is no error.
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const std::string name = it->path().filename().string();
    if (it->is_directory(gone)) {
      names.push_back(absl::StrCat(name, "/"));
    } else if (it->is_regular_file(gone)) {
      names.push_back(name);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    return Refused(path, error);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status FolderStore::Write(const std::string& key, absl::string_view bytes) {
  const std::string path = PathOf(key);
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return Refused(path, error);
  return WriteAtomically(path, {std::as_bytes(std::span(bytes.data(), bytes.size()))});
}

absl::Status FolderStore::Remove(const std::string& key) {
  std::error_code error;
  fs::remove(PathOf(key), error);
  if (error) return Refused(PathOf(key), error);
  fs::remove(fs::path(PathOf(key)).parent_path(), error);  // Unless there is something left in it.
  return absl::OkStatus();
}

}  // namespace stagewright
