#include "worker_daemon/data/path_roots.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/regular_file.h"
#include "common/data/data_files.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

bool IsEmpty(const std::string& root) { return root.empty(); }

bool HasParent(const fs::path& path) {
  return std::find(path.begin(), path.end(), fs::path("..")) != path.end();
}

constexpr int kMostLinks = 40;  // As many as Linux follows.

// The path with its first link followed; itself if it has none.
fs::path FollowFirstLink(const fs::path& path, std::error_code& error) {
  fs::path followed;
  bool found = false;
  for (const fs::path& name : path) {
    std::error_code missing;
    if (found || !fs::is_symlink(fs::symlink_status(followed / name, missing))) {
      followed /= name;
      continue;
    }
    followed /= fs::read_symlink(followed / name, error);  // An absolute one begins anew.
    found = true;
  }
  return followed;
}

// Where it leads, also through links to what is not there (yet); nothing where that cannot be said.
fs::path Resolved(const fs::path& path) {
  std::error_code error;
  fs::path resolved = fs::absolute(path, error);
  for (int links = 0; links <= kMostLinks && !error; ++links) {
    resolved = fs::weakly_canonical(resolved, error);
    // What is there has no links any more.
    const fs::path next = error ? resolved : FollowFirstLink(resolved, error);
    if (!error && next == resolved) return resolved;
    resolved = next;
  }
  return {};
}

// Only what is is opened below the root, too (common/base/regular_file.h).
bool IsNamedWithin(const fs::path& path, const std::string& root) {
  return PathBelow(root, path).has_value() || PathBelow(Resolved(root), path).has_value();
}

bool IsWithin(const fs::path& path, const std::string& root) {
  const fs::path resolved = Resolved(path), base = Resolved(root);
  if (resolved.empty() || base.empty()) return false;
  return std::mismatch(base.begin(), base.end(), resolved.begin(), resolved.end()).first ==
         base.end();
}

absl::Status Outside(absl::string_view field, absl::string_view what) {
  return absl::PermissionDeniedError(
      absl::StrCat(field, ": outside of the directories that jobs may ", what));
}

absl::Status Check(const std::vector<std::string>& roots, absl::string_view field,
                   absl::string_view what, const std::string& path) {
  if (path.empty() || roots.empty()) return absl::OkStatus();
  const std::vector<std::string> asked = NamedFirst(roots, path);
  const auto any = [&](bool (*is)(const fs::path&, const std::string&)) {
    return std::any_of(asked.begin(), asked.end(),
                       [&](const std::string& root) { return is(path, root); });
  };
  return any(IsNamedWithin) && any(IsWithin) && !HasParent(path) ? absl::OkStatus()
                                                                 : Outside(field, what);
}

// The places of a list "input=place,input=place", without what begins with a wildcard.
std::vector<std::string> FixedParts(const std::string& path) {
  std::vector<std::string> parts;
  for (absl::string_view part : absl::StrSplit(path, ',')) {
    const size_t equals = part.find('=');
    if (equals != absl::string_view::npos &&
        part.substr(0, equals).find('/') == absl::string_view::npos)
      part.remove_prefix(equals + 1);
    if (HasParent(fs::path(std::string(part)))) parts.push_back("..");
    const size_t wildcard = part.find_first_of("*?[");
    if (wildcard != absl::string_view::npos)
      part = part.substr(0, part.substr(0, wildcard).rfind('/') + 1);
    parts.emplace_back(part.empty() ? "." : part);
  }
  return parts;
}

constexpr absl::string_view kReads = "read on this worker (--data-root, --output-root)";

std::vector<std::string> ReadRoots(const PathRoots& roots) {
  std::vector<std::string> found;
  if (!roots.data.empty()) found = {roots.data, roots.output};
  found.erase(std::remove_if(found.begin(), found.end(), IsEmpty), found.end());
  return found;
}

}  // namespace

bool ConfineTo(const PathRoots& roots) {
  FileRoots files;
  files.read = ReadRoots(roots);
  if (!roots.output.empty()) files.write = {roots.output};
  return ConfineFiles(std::move(files));
}

absl::Status CheckReads(const PathRoots& roots, absl::string_view field, const std::string& path) {
  return Check(ReadRoots(roots), field, kReads, path);
}

absl::Status CheckWrites(const PathRoots& roots, absl::string_view field, const std::string& path) {
  if (roots.output.empty()) return absl::OkStatus();
  return Check({roots.output}, field, "write to on this worker (--output-root)", path);
}

absl::Status CheckReadsData(const PathRoots& roots, absl::string_view field,
                            const std::string& path, const std::vector<std::string>& inputs) {
  const std::vector<std::string> read_roots = ReadRoots(roots);
  if (path.empty() || read_roots.empty()) return absl::OkStatus();
  for (const std::string& part : FixedParts(path))
    RETURN_IF_ERROR(Check(read_roots, field, kReads, part));
  for (const std::string& input : inputs) {
    const auto files = DataFilesOf(path, input);
    if (!files.ok()) continue;  // Nothing is read then; who opens the data set says why.
    for (const std::string& file : *files) RETURN_IF_ERROR(Check(read_roots, field, kReads, file));
  }
  return absl::OkStatus();
}

}  // namespace stagewright
