// A YAML file of settings, as it is written: what its keys mean is for whoever knows them.
//
//   listen: 0.0.0.0:7070
//   planning-threads: 4
//   quota: [vision=8, speech=4]
//   contexts:                       # Where contexts are wanted.
//     lab: {planner-address: "lab:7070", tls-ca: /etc/lab.pem}
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;  // One, but of a list.
  bool list = false;
  int line = 0;  // The first is 1.
};

struct ConfigContext {
  std::string name;
  std::vector<ConfigEntry> entries;
  int line = 0;
};

struct ConfigFile {
  std::string path;
  std::vector<ConfigEntry> entries;  // In the order of the file, each key once.
  std::vector<ConfigContext> contexts;
};

// The key of the map of contexts.
inline constexpr char kContextsKey[] = "contexts";

// An empty file has no entries. `with_contexts`: the key "contexts" has a map of names to entries.
// NOT_FOUND if the file cannot be read; INVALID_ARGUMENT says "FILE:LINE: ..." where it is not
// YAML, no map, has a key twice, or a value that is a map or missing.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path, bool with_contexts);
// The same of a text, where `path` is what errors call it.
absl::StatusOr<ConfigFile> ParseConfig(const std::string& path, const std::string& text,
                                       bool with_contexts);

// The text with `key: value` in it, in place of the entry of that key or as the first; all else,
// comments too, stays as it is. INVALID_ARGUMENT as above, and where the entry is not a line of its
// own.
absl::StatusOr<std::string> WithEntry(const std::string& path, const std::string& text,
                                      const std::string& key, const std::string& value);

}  // namespace stagewright
