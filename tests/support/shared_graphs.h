// Where tests find the published profiles that stay outside the repository: the folder that the
// environment variable STAGEWRIGHT_PROFILES names, or else the CMake cache variable of that name.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace stagewright {

// The path of a profile, as in SharedGraph("piper/gnmt.json"); empty if it is not there.
inline std::string SharedGraph(const std::string& name) {
  const char* folder = std::getenv("STAGEWRIGHT_PROFILES");
  const std::string path =
      std::string(folder != nullptr ? folder : STAGEWRIGHT_PROFILES_FOLDER) + "/" + name;
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ? path : "";
}

}  // namespace stagewright

// Defines `path`, or skips the test where the profile is absent.
#define STAGEWRIGHT_SHARED_GRAPH_OR_SKIP(path, name)         \
  const std::string path = ::stagewright::SharedGraph(name); \
  if (path.empty()) GTEST_SKIP() << "no profile " << (name) << ": see tests/README.md"
