#include "common/artifacts/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/artifacts/content_hash.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;

ArtifactManifest ThreeChunks() {
  return {250, 100, {ContentHash("a"), ContentHash("b"), ContentHash("c")}};
}

TEST(Manifest, ReadsWhatItWrites) {
  const std::string text = ToText(ThreeChunks());
  const auto read = ParseManifest(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size, 250u);
  EXPECT_EQ(read->chunk_bytes, 100u);
  EXPECT_EQ(read->chunks, ThreeChunks().chunks);
  EXPECT_EQ(ToText(*read), text);
  EXPECT_TRUE(ParseManifest(ToText({0, 4, {}})).ok());
}

TEST(Manifest, KnowsTheChunksOfBytes) {
  const ArtifactManifest manifest = ThreeChunks();
  EXPECT_EQ(manifest.BytesOf(0), 100u);
  EXPECT_EQ(manifest.BytesOf(2), 50u);
  EXPECT_THAT(manifest.ChunksOf(0, 100), Pair(0u, 1u));
  EXPECT_THAT(manifest.ChunksOf(99, 101), Pair(0u, 2u));
  EXPECT_THAT(manifest.ChunksOf(100, 250), Pair(1u, 3u));
  EXPECT_THAT(manifest.ChunksOf(250, 250), Pair(0u, 0u));
}

TEST(Manifest, ChunksGrowWithTheFile) {
  EXPECT_EQ(ChunkBytesFor(0), uint64_t{4} << 20);
  EXPECT_EQ(ChunkBytesFor(uint64_t{256} << 30), uint64_t{4} << 20);
  EXPECT_EQ(ChunkBytesFor((uint64_t{256} << 30) + 1), uint64_t{8} << 20);
  EXPECT_EQ(ChunkBytesFor(~uint64_t{0}), kMostChunkBytes);
}

TEST(Manifest, WhatIsNoneIsRefused) {
  const std::string hash = ContentHash("a");
  const auto text = [](const std::string& size, const std::string& bytes, const std::string& chunks,
                       const std::string& format = "stagewright-artifact/1") {
    return R"({"format":")" + format + R"(","size":)" + size + R"(,"chunk_bytes":)" + bytes +
           R"(,"chunks":[)" + chunks + "]}";
  };
  const std::string good = "\"" + hash + "\"";
  EXPECT_TRUE(ParseManifest(text("100", "100", good)).ok());
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string("{}"), text("100", "100", good, "other/1"),
        text("-1", "100", good), text("1.5", "100", good), text("\"1\"", "100", good),
        text("100", "0", good), text("100", "67108865", good), text("101", "100", good),
        text("100", "100", ""), text("100", "100", good + "," + good), text("100", "100", "1"),
        text("100", "100", "\"../x\""), text("100", "100", "\"" + hash + "0\""),
        text("18446744073709551615", "1", good), text("18446744073709551616", "1", good)}) {
    const auto manifest = ParseManifest(bad);
    EXPECT_EQ(manifest.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(manifest.status().message()), HasSubstr("no manifest"));
  }
}

}  // namespace
}  // namespace stagewright
