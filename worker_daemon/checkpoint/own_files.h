// What a job has written into a directory where others may write, too: told by its name, and
// removed without touching what is theirs.
#pragma once

#include <string>
#include <system_error>

#include "absl/strings/string_view.h"

namespace stagewright {

// Whether WriteAtomically gives a file this name that is to be named `file`.
bool IsFileOrDraft(absl::string_view name, absl::string_view file);
// The same of a device's file, as "model-00003.safetensors" with the prefix "model-".
bool IsFileOfDevice(absl::string_view name, absl::string_view prefix);

// Removes the regular files in `directory` that `is_ours` knows by their names, `first` before all
// others if it is not null, and the directory if nothing else is in it. Other files stay, which is
// no error, and so does all that is behind a link. In one folder from beginning to end, wherever
// its name leads meanwhile. Others may remove the same. The system's error where something cannot
// be removed.
std::error_code RemoveOurs(const std::string& directory, bool (*is_ours)(absl::string_view),
                           const char* first = nullptr);

}  // namespace stagewright
