// Where tests find the published profiles that stay outside the repository: the folder that the
// environment variable STAGEWRIGHT_PROFILES names, or else the CMake cache variable of that name.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "planner_service/importers/profile.h"

namespace stagewright {

// The folder, which need not be there.
inline std::string SharedGraphs() {
  const char* folder = std::getenv("STAGEWRIGHT_PROFILES");
  return folder != nullptr ? folder : STAGEWRIGHT_PROFILES_FOLDER;
}

// The path of a profile, as in SharedGraph("piper/gnmt.json"); empty if it is not there.
inline std::string SharedGraph(const std::string& name) {
  const std::string path = SharedGraphs() + "/" + name;
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ? path : "";
}

// The graph of a profile that is there; a bug if it cannot be read.
inline Graph ImportedGraph(ProfileFormat format, const std::string& path) {
  absl::StatusOr<ImportedProfile> profile = ImportProfileFile(format, path);
  if (!profile.ok()) std::fprintf(stderr, "%s\n", profile.status().ToString().c_str());
  CHECK(profile.ok());
  return std::move(profile->graph);
}

}  // namespace stagewright

// Defines `path`, or skips the test where the profile is absent.
#define STAGEWRIGHT_SHARED_GRAPH_OR_SKIP(path, name)         \
  const std::string path = ::stagewright::SharedGraph(name); \
  if (path.empty()) GTEST_SKIP() << "no profile " << (name) << ": see tests/README.md"
