// Chunks that this machine has read already, in a folder that several workers may share. Each is a
// file that its hash names and that is written whole or not at all, so nobody waits for anybody:
// what another has removed meanwhile is read from the store again, and what is damaged, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace stagewright {

// Safe from any thread and in several processes. What the disk does not take is not kept.
class ChunkCache {
 public:
  // Holds at most about `most` bytes: a process removes what was not used for longest whenever it
  // has added a sixteenth of that.
  ChunkCache(const std::string& folder, uint64_t most);

  const std::string& folder() const { return folder_; }
  // What has this hash; nothing if it is not here.
  std::optional<std::string> Find(const std::string& hash) const;
  // REQUIRES: `bytes` have this hash.
  void Add(const std::string& hash, absl::string_view bytes);

 private:
  void Trim() const;

  const std::string folder_;
  const uint64_t most_;
  absl::Mutex mutex_;
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;  // Since it was last trimmed.
};

}  // namespace stagewright
