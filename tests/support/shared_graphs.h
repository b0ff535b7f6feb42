// Where tests find profiles: our own are made by code, the published ones stay outside the
// repository, in the folder that the environment variable STAGEWRIGHT_PROFILES names, or else the
// CMake cache variable of that name.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "planner_service/importers/profile.h"
#include "tests/support/profiles/synthetic_profiles.h"

namespace stagewright {

// The folder of the published ones, which need not be there.
inline std::string SharedGraphs() {
  const char* folder = std::getenv("STAGEWRIGHT_PROFILES");
  return folder != nullptr ? folder : STAGEWRIGHT_PROFILES_FOLDER;
}

// What ReadProfile takes for a profile, as in SharedGraph("piper/gnmt.json"): the name of one of
// our own, or the path of a published one; empty if that is not there.
inline std::string SharedGraph(const std::string& name) {
  if (SyntheticProfile(name)) return name;
  const std::string path = SharedGraphs() + "/" + name;
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ? path : "";
}

// The profile for which SharedGraph gives `path`.
inline absl::StatusOr<ImportedProfile> ReadProfile(ProfileFormat format, const std::string& path) {
  const std::optional<std::string> own = SyntheticProfile(path);
  return own ? ImportProfile(format, *own, path) : ImportProfileFile(format, path);
}

// Its graph; a bug if it cannot be read.
inline Graph ImportedGraph(ProfileFormat format, const std::string& path) {
  absl::StatusOr<ImportedProfile> profile = ReadProfile(format, path);
  if (!profile.ok()) std::fprintf(stderr, "%s\n", profile.status().ToString().c_str());
  CHECK(profile.ok());
  return std::move(profile->graph);
}

}  // namespace stagewright

// Defines `path`, or skips the test where the published profile is absent. REQUIRES: a test whose
// full name has "Published" in it, of a program that NEEDS_PROFILES (tests/CMakeLists.txt).
#define STAGEWRIGHT_SHARED_GRAPH_OR_SKIP(path, name)         \
  const std::string path = ::stagewright::SharedGraph(name); \
  if (path.empty()) GTEST_SKIP() << "no profile " << (name) << ": see tests/README.md"
