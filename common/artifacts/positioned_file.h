// A new file that is written at any place of it, from any thread, and has its name only when it is
// whole, or never.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace stagewright {

class PositionedFile {
 public:
  // In the directory of `path`, under a name that nobody else has. UNAVAILABLE, NOT_FOUND or
  // PERMISSION_DENIED.
  static absl::StatusOr<PositionedFile> Create(const std::string& path);
  PositionedFile(PositionedFile&& other) noexcept;
  PositionedFile& operator=(PositionedFile&&) = delete;
  // The file is gone unless it was given its name.
  ~PositionedFile();

  absl::Status Write(uint64_t offset, absl::string_view bytes) const;
  // Syncs and renames it to its path.
  absl::Status Publish();
  // Takes the temporary name away: what was written is there as long as somebody has it open.
  absl::Status Unname();
  // Where it can be opened until then, and while this object lives.
  std::string OpenPath() const;

 private:
  PositionedFile(std::string path, std::string temporary, int file);

  std::string path_, temporary_;  // Empty: it has no temporary name any more.
  int file_;
};

}  // namespace stagewright
