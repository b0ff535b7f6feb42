#include "common/data/data_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsGlob(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

// Sorted by bytes, whatever the locale.
std::vector<std::string> Glob(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Files of the directory with the extension, and a name that starts with `prefix`.
std::vector<std::string> FilesIn(const std::string& directory, absl::string_view extension,
                                 absl::string_view prefix = "") {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name[0] == '.' || !absl::EndsWith(name, extension) || !absl::StartsWith(name, prefix))
      continue;
    paths.push_back(it->path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// A path that names every input's files by itself: "input=place", separated by commas. Nothing if
// it is not of that kind.
std::vector<std::pair<std::string, std::string>> Pairs(const std::string& path) {
  std::vector<std::pair<std::string, std::string>> pairs;
  if (Exists(path) || path.find('=') == std::string::npos) return pairs;
  for (absl::string_view part : absl::StrSplit(path, ',')) {
    const size_t at = part.find('=');
    // A path with a "=" in it is no list.
    if (at == absl::string_view::npos || part.substr(0, at).find('/') != absl::string_view::npos)
      return {};
    pairs.emplace_back(std::string(part.substr(0, at)), std::string(part.substr(at + 1)));
  }
  return pairs;
}

absl::Status NoFiles(const std::string& path, const std::string& input) {
  return absl::NotFoundError(
      absl::StrCat(path, ": there is no file with samples of input \"", input, "\""));
}

// Where a place is only of one input, its directory has nothing but shards.
absl::StatusOr<std::vector<std::string>> FilesAt(const std::string& place,
                                                 const std::string& input) {
  std::vector<std::string> files = {place};
  if (IsDirectory(place)) {
    files = FilesIn(place, ".npy");
    if (files.empty()) files = FilesIn(place, ".safetensors");
  } else if (!Exists(place) && IsGlob(place)) {
    files = Glob(place);
  }
  if (files.empty()) return NoFiles(place, input);
  return files;
}

absl::StatusOr<std::vector<std::string>> FilesInDirectory(const std::string& path,
                                                          const std::string& input) {
  std::vector<std::string> files = FilesIn(path, ".safetensors");
  if (!files.empty()) return files;
  const std::string stem = absl::StrCat(path, "/", input);
  if (Exists(stem + ".npy")) return std::vector<std::string>{stem + ".npy"};
  if (IsDirectory(stem)) return FilesAt(stem, input);
  files = FilesIn(path, ".npy", input + "-");
  if (files.empty()) return NoFiles(path, input);
  return files;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> DataFilesOf(const std::string& path,
                                                     const std::string& input) {
  const auto pairs = Pairs(path);
  if (!pairs.empty()) {
    for (const auto& [name, place] : pairs) {
      if (name == input) return FilesAt(place, input);
    }
    return absl::NotFoundError(
        absl::StrCat(path, ": no file is given for \"", input, "\", an input of the graph"));
  }
  if (IsDirectory(path)) return FilesInDirectory(path, input);
  return FilesAt(path, input);
}

}  // namespace stagewright
