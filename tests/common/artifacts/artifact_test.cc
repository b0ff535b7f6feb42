#include "common/artifacts/artifact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <utility>

#include "common/artifacts/artifact_keys.h"
#include "common/artifacts/artifact_name.h"
#include "common/artifacts/content_hash.h"
#include "tests/common/artifacts/stored_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ReadRange(const Artifact& artifact, uint64_t offset, size_t size) {
  std::string text(size, '?');
  const absl::Status status =
      artifact.Read(offset, std::as_writable_bytes(std::span(text.data(), text.size())));
  return status.ok() ? text : std::string(status.message());
}

absl::Status ReadStatus(const Artifact& artifact, uint64_t offset, size_t size) {
  std::string text(size, '?');
  return artifact.Read(offset, std::as_writable_bytes(std::span(text.data(), text.size())));
}

TEST(Artifact, ReadsAnyRange) {
  StoredFiles files;
  const std::string text = SomeText(250);
  const auto artifact = Artifact::Open(files.store, nullptr, files.Put(text));
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_EQ(artifact->size(), 250u);
  for (size_t begin = 0; begin <= 250; begin += 25) {
    for (size_t end = begin; end <= 250; end += 25)
      EXPECT_EQ(ReadRange(*artifact, begin, end - begin), text.substr(begin, end - begin));
  }
  EXPECT_EQ(ReadStatus(*artifact, 200, 51).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadStatus(*artifact, ~uint64_t{0}, 2).code(), absl::StatusCode::kDataLoss);
}

TEST(Artifact, ReadsNoChunkThatNobodyAsksFor) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(1000));
  const auto artifact = Artifact::Open(files.store, nullptr, name);
  const uint64_t manifest = artifact->fetched_bytes();
  EXPECT_EQ(ReadRange(*artifact, 250, 10), SomeText(1000).substr(250, 10));
  EXPECT_EQ(artifact->fetched_bytes(), manifest + 100);
  std::mutex mutex;
  std::set<size_t> taken;
  ASSERT_TRUE(artifact
                  ->ForEachChunk({1, 3, 4, 5, 8},
                                 [&](size_t chunk, absl::string_view bytes) {
                                   const std::lock_guard lock(mutex);
                                   EXPECT_TRUE(taken.insert(chunk).second);
                                   EXPECT_EQ(bytes, SomeText(1000).substr(chunk * 100, 100));
                                   return absl::OkStatus();
                                 })
                  .ok());
  EXPECT_THAT(taken, ElementsAre(1u, 3u, 4u, 5u, 8u));
  EXPECT_EQ(artifact->fetched_bytes(), manifest + 600);
}

TEST(Artifact, WhatIsNotThereIsNamed) {
  StoredFiles files;
  files.Put("something");
  const std::string name = "sha256:" + ContentHash("nothing");
  const absl::Status status = Artifact::Open(files.store, nullptr, name).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            name + ": there is no such artifact in " + files.directory.File("store"));
  for (const std::string bad : {"sha256:../../etc/passwd", "sha256:", "/etc/passwd"}) {
    EXPECT_EQ(Artifact::Open(files.store, nullptr, bad).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(Artifact, DamageIsFoundWhereItIsRead) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300));
  const auto artifact = Artifact::Open(files.store, nullptr, name);
  ASSERT_TRUE(artifact.ok());
  std::string chunk = ReadText(files.ObjectOf(name, "chunk-000001"));
  chunk[50] ^= 1;
  for (const std::string& damaged : {chunk, chunk.substr(0, 99), chunk + "x"}) {
    WriteText(files.ObjectOf(name, "chunk-000001"), damaged);
    const absl::Status status = ReadStatus(*artifact, 0, 300);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(name + ": chunk 1 of 3 in "));
    EXPECT_TRUE(ReadStatus(*artifact, 0, 100).ok());
    EXPECT_TRUE(ReadStatus(*artifact, 200, 100).ok());
  }
  std::filesystem::remove(files.ObjectOf(name, "chunk-000001"));
  EXPECT_EQ(ReadStatus(*artifact, 150, 1).code(), absl::StatusCode::kDataLoss);
  std::vector<size_t> all = {0, 1, 2};
  EXPECT_EQ(artifact->ForEachChunk(all, [](size_t, absl::string_view) { return absl::OkStatus(); })
                .code(),
            absl::StatusCode::kDataLoss);
  std::string manifest = ReadText(files.ObjectOf(name, "manifest.json"));
  WriteText(files.ObjectOf(name, "manifest.json"), manifest + " ");
  const absl::Status status = Artifact::Open(files.store, nullptr, name).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(name + ": its manifest"));
}

TEST(Artifact, ChunksHaveTheLengthThatTheManifestSays) {
  StoredFiles files;
  const std::vector<std::string> chunks = {"abcdefg", "x"};
  const std::string manifest = ToText({16, 8, {ContentHash(chunks[0]), ContentHash(chunks[1])}});
  const std::string name = ArtifactNameOf(manifest);
  ASSERT_TRUE(files.store->Write(ManifestKey(name), manifest).ok());
  const auto cache = std::make_shared<ChunkCache>(files.directory.File("cache"), 1000);
  for (size_t i = 0; i < chunks.size(); ++i) {
    ASSERT_TRUE(files.store->Write(ChunkKey(name, i), chunks[i]).ok());
    cache->Add(ContentHash(chunks[i]), chunks[i]);
  }
  for (const std::shared_ptr<ChunkCache>& used : {std::shared_ptr<ChunkCache>(), cache}) {
    const auto artifact = Artifact::Open(files.store, used, name);
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    for (const auto& [offset, size] : {std::pair(0, 16), {0, 8}, {7, 1}, {10, 6}, {15, 1}}) {
      EXPECT_EQ(ReadStatus(*artifact, offset, size).code(), absl::StatusCode::kDataLoss)
          << offset << " " << size;
    }
    for (const size_t chunk : {0, 1}) {
      const absl::Status status = artifact->ForEachChunk({chunk}, [](size_t, absl::string_view) {
        ADD_FAILURE();
        return absl::OkStatus();
      });
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    }
    EXPECT_EQ(CheckArtifact(*artifact).code(), absl::StatusCode::kDataLoss);
  }
}

TEST(Artifact, WhatIsCachedIsNotFetchedAgain) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300));
  const auto cache = std::make_shared<ChunkCache>(files.directory.File("cache"), 1000);
  EXPECT_TRUE(ReadStatus(*Artifact::Open(files.store, cache, name), 0, 200).ok());
  const auto artifact = Artifact::Open(files.store, cache, name);
  const uint64_t manifest = artifact->fetched_bytes();
  EXPECT_EQ(ReadRange(*artifact, 0, 300), SomeText(300));
  EXPECT_EQ(artifact->fetched_bytes(), manifest + 100);
}

TEST(Artifact, WhoGivesUpWaitsForNothing) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300));
  bool given_up = false;
  const auto artifact = Artifact::Open(files.store, nullptr, name, [&] { return given_up; });
  ASSERT_TRUE(artifact.ok());
  given_up = true;
  EXPECT_EQ(ReadStatus(*artifact, 0, 300).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace stagewright
