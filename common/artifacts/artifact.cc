#include "common/artifacts/artifact.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/artifacts/artifact_keys.h"
#include "common/artifacts/artifact_name.h"
#include "common/artifacts/content_hash.h"

namespace stagewright {
namespace {

// Enough to keep a network and the processors busy with hashing.
constexpr size_t kAtOnce = 4;

}  // namespace

absl::StatusOr<Artifact> Artifact::Open(std::shared_ptr<const ArtifactStore> store,
                                        std::shared_ptr<ChunkCache> cache, const std::string& name,
                                        GivenUp given_up) {
  RETURN_IF_ERROR(CheckArtifactName(name));
  Artifact artifact;
  artifact.fetched_ = std::make_shared<std::atomic<uint64_t>>(0);
  auto text = store->Read(ManifestKey(name), kMostManifestBytes, given_up);
  if (absl::IsNotFound(text.status()))
    return absl::NotFoundError(
        absl::StrCat(name, ": there is no such artifact in ", store->where()));
  if (!text.ok()) return Annotate(text.status(), name);
  *artifact.fetched_ += text->size();
  if (ArtifactNameOf(*text) != name) {
    return absl::DataLossError(absl::StrCat(name, ": its manifest in ", store->where(),
                                            " is damaged: it has another hash"));
  }
  auto manifest = ParseManifest(*text);
  if (!manifest.ok()) return Annotate(manifest.status(), name);
  artifact.store_ = std::move(store);
  artifact.cache_ = std::move(cache);
  artifact.given_up_ = std::move(given_up);
  artifact.name_ = name;
  artifact.manifest_ = *std::move(manifest);
  return artifact;
}

absl::StatusOr<std::string> Artifact::Chunk(size_t chunk) const {
  const std::string& hash = manifest_.chunks[chunk];
  const uint64_t size = manifest_.BytesOf(chunk);
  if (cache_ != nullptr) {
    auto cached = cache_->Find(hash);
    if (cached.has_value() && cached->size() == size) return *std::move(cached);
  }
  const auto damaged = [&](absl::string_view how) {
    return absl::DataLossError(absl::StrCat(name_, ": chunk ", chunk, " of ",
                                            manifest_.chunks.size(), " in ", store_->where(), " ",
                                            how));
  };
  auto bytes = store_->Read(ChunkKey(name_, chunk), size, given_up_);
  if (absl::IsNotFound(bytes.status())) return damaged("is missing");
  if (absl::IsDataLoss(bytes.status())) return damaged("is damaged: it is longer than it was");
  if (!bytes.ok()) return Annotate(bytes.status(), name_);
  *fetched_ += bytes->size();
  if (ContentHash(*bytes) != hash) return damaged("is damaged: it has another hash");
  // The manifest is whoever put it's: what has the right hash may still be shorter than it says.
  if (bytes->size() != size) return damaged("is damaged: it is shorter than the manifest says");
  if (cache_ != nullptr) cache_->Add(hash, *bytes);
  return *std::move(bytes);
}

absl::Status Artifact::Read(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size() || out.size() > size() - offset) {
    return absl::DataLossError(
        absl::StrCat(name_, ": it has ", size(), " bytes, not ", offset, " and then ", out.size()));
  }
  const auto [first, end] = manifest_.ChunksOf(offset, offset + out.size());
  for (size_t chunk = first; chunk < end; ++chunk) {
    ASSIGN_OR_RETURN(const std::string bytes, Chunk(chunk));
    const uint64_t begin = chunk * manifest_.chunk_bytes;
    const uint64_t from = std::max(begin, offset);
    const uint64_t to = std::min<uint64_t>(begin + bytes.size(), offset + out.size());
    std::memcpy(out.data() + (from - offset), bytes.data() + (from - begin), to - from);
  }
  return absl::OkStatus();
}

absl::Status Artifact::ForEachChunk(const std::vector<size_t>& chunks,
                                    const TakeChunk& take) const {
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  std::vector<absl::Status> results(std::min(kAtOnce, chunks.size()));
  const auto work = [&](absl::Status& result) {
    for (size_t i = next++; i < chunks.size() && !failed && result.ok(); i = next++) {
      const auto bytes = Chunk(chunks[i]);
      result = bytes.ok() ? take(chunks[i], *bytes) : bytes.status();
      if (!result.ok()) failed = true;
    }
  };
  std::vector<std::thread> threads;
  for (absl::Status& result : results) threads.emplace_back([&] { work(result); });
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

}  // namespace stagewright
