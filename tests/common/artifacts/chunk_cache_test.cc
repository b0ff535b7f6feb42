#include "common/artifacts/chunk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "common/artifacts/content_hash.h"
#include "tests/common/artifacts/stored_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::Optional;

std::string Chunk(int i) { return std::string(100, static_cast<char>('a' + i)); }

TEST(ChunkCache, FindsWhatWasAddedInOtherProcessesToo) {
  const TempDirectory directory;
  ChunkCache cache(directory.File("cache"), 1000), other(directory.File("cache"), 1000);
  EXPECT_EQ(cache.Find(ContentHash(Chunk(0))), std::nullopt);
  cache.Add(ContentHash(Chunk(0)), Chunk(0));
  EXPECT_THAT(cache.Find(ContentHash(Chunk(0))), Optional(Chunk(0)));
  EXPECT_THAT(other.Find(ContentHash(Chunk(0))), Optional(Chunk(0)));
}

TEST(ChunkCache, WhatIsDamagedIsNotThere) {
  const TempDirectory directory;
  ChunkCache cache(directory.File("cache"), 1000);
  const std::string hash = ContentHash(Chunk(0));
  cache.Add(hash, Chunk(0));
  WriteText(directory.File("cache/" + hash), Chunk(1));
  EXPECT_EQ(cache.Find(hash), std::nullopt);
  cache.Add(hash, Chunk(0));
  EXPECT_THAT(cache.Find(hash), Optional(Chunk(0)));
}

TEST(ChunkCache, WhatWasNotUsedForLongestGoes) {
  const TempDirectory directory;
  ChunkCache cache(directory.File("cache"), 350);
  for (int i = 0; i < 3; ++i) {
    cache.Add(ContentHash(Chunk(i)), Chunk(i));
    std::filesystem::last_write_time(
        directory.File("cache/" + ContentHash(Chunk(i))),
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(10 - i));
  }
  EXPECT_TRUE(cache.Find(ContentHash(Chunk(0))).has_value());  // Used now.
  cache.Add(ContentHash(Chunk(3)), Chunk(3));
  EXPECT_TRUE(cache.Find(ContentHash(Chunk(0))).has_value());
  EXPECT_FALSE(cache.Find(ContentHash(Chunk(1))).has_value());
  EXPECT_TRUE(cache.Find(ContentHash(Chunk(2))).has_value());
  EXPECT_TRUE(cache.Find(ContentHash(Chunk(3))).has_value());
}

TEST(ChunkCache, OnlyItsOwnFilesAreRemoved) {
  const TempDirectory directory;
  std::filesystem::create_directories(directory.File("cache"));
  const std::string thesis = directory.File("cache/thesis.txt");
  WriteText(thesis, std::string(1000, 'x'));
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(9999);
  std::filesystem::last_write_time(thesis, long_ago);
  // What a process that was killed has left.
  const std::string left = directory.File("cache/" + ContentHash(Chunk(9)) + ".0123.tmp");
  WriteText(left, Chunk(9));
  std::filesystem::last_write_time(left, long_ago);
  ChunkCache cache(directory.File("cache"), 250);
  for (int i = 0; i < 9; ++i) cache.Add(ContentHash(Chunk(i)), Chunk(i));
  EXPECT_TRUE(std::filesystem::exists(thesis));
  EXPECT_FALSE(std::filesystem::exists(left));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.File("cache")))
    files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 1u + 2u);  // The thesis, and two chunks.
}

TEST(ChunkCache, DoesWithoutAFolderThatCannotBeMade) {
  const TempDirectory directory;
  WriteText(directory.File("file"), "");
  ChunkCache cache(directory.File("file/cache"), 1000);
  cache.Add(ContentHash(Chunk(0)), Chunk(0));
  EXPECT_EQ(cache.Find(ContentHash(Chunk(0))), std::nullopt);
}

}  // namespace
}  // namespace stagewright
