#include "common/artifacts/chunk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/artifacts/content_hash.h"
#include "common/artifacts/manifest.h"
#include "common/base/atomic_file.h"
#include "common/base/regular_file.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

struct CachedFile {
  fs::file_time_type used;
  uint64_t bytes = 0;
  fs::path path;
};

// One of ours: a chunk, or what was to become one.
bool IsOurs(const std::string& name) {
  return IsContentHash(name.substr(0, 64)) && (name.size() == 64 || absl::EndsWith(name, ".tmp"));
}

}  // namespace

ChunkCache::ChunkCache(const std::string& folder, uint64_t most)
    : folder_(fs::absolute(folder).string()), most_(most) {}

std::optional<std::string> ChunkCache::Find(const std::string& hash) const {
  const std::string path = absl::StrCat(folder_, "/", hash);
  auto bytes = ReadSmallFile(path, kMostChunkBytes);
  if (!bytes.ok() || ContentHash(*bytes) != hash) return std::nullopt;
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // Used now.
  return *std::move(bytes);
}

void ChunkCache::Add(const std::string& hash, absl::string_view bytes) {
  if (bytes.size() > most_) return;
  std::error_code ignored;
  fs::create_directories(folder_, ignored);
  const absl::Status written = WriteAtomically(
      absl::StrCat(folder_, "/", hash), {std::as_bytes(std::span(bytes.data(), bytes.size()))});
  absl::MutexLock lock(&mutex_);
  added_ += bytes.size();
  if (written.ok() && added_ < most_ / 16) return;
  added_ = 0;
  Trim();
}

void ChunkCache::Trim() const {
  std::vector<CachedFile> files;
  uint64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    if (!IsOurs(it->path().filename().string())) continue;
    std::error_code gone;  // Another worker trims, too.
    const uint64_t bytes = it->file_size(gone);
    const fs::file_time_type used = gone ? fs::file_time_type() : it->last_write_time(gone);
    if (gone) continue;
    files.push_back({used, bytes, it->path()});
    total += bytes;
  }
  std::sort(files.begin(), files.end(),
            [](const CachedFile& a, const CachedFile& b) { return a.used < b.used; });
  for (size_t i = 0; i < files.size() && total > most_; ++i) {
    fs::remove(files[i].path, error);
    total -= files[i].bytes;
  }
}

}  // namespace stagewright
