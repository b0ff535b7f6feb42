// Files that are named by others: opened without waiting, only if they are files, and only where
// those may lie.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

// Directories that others may name files in; empty: anywhere.
struct FileRoots {
  std::vector<std::string> read, write;
};

// The way from `root` to `path` by their names alone, or by the name of what `root` leads to, "."
// if they are the same; nothing if `path` is not below it. Links within `path` are not looked at.
std::optional<std::filesystem::path> PathBelow(const std::string& root,
                                               const std::filesystem::path& path);

// Those that `path` is below by their names alone come first. Who asks the roots in this order asks
// no other one, which may be on a file system that hangs, about what lies below such a one.
std::vector<std::string> NamedFirst(std::vector<std::string> roots,
                                    const std::filesystem::path& path);

// From now on, in the whole process: a path that is below one of these directories (PathBelow) is
// opened only if it still leads below one of them, whatever links were swapped in since somebody
// looked (openat2 of Linux 5.6, RESOLVE_BENEATH). Other paths are opened as ever. False if there
// are directories and the system has no such call: links are followed then. Call it while there is
// one thread.
bool ConfineFiles(FileRoots roots);

// A descriptor of a directory that a file is written to, for openat and its like, the caller's to
// close; "" is the present one. Negative with errno, EXDEV if that is not where it may lie.
int OpenFolderToWrite(const std::string& path);

// A descriptor for reading, the caller's to close. NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE if
// it cannot be opened; INVALID_ARGUMENT says what it is if it is no regular file: a FIFO would be
// waited for, a device never ends. Each names the path.
absl::StatusOr<int> OpenRegularFile(const std::string& path);

// Hands the contents to `take`, a block after the other. Errors of OpenRegularFile, or UNAVAILABLE.
absl::Status ReadRegularFile(const std::string& path,
                             const std::function<void(std::span<const char>)>& take);

// The contents. Errors of ReadRegularFile, or DATA_LOSS if there are more than `most` bytes.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t most);

}  // namespace stagewright
