#include "planner_service/store/etcd/etcd_values.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(EtcdValues, EntriesAreRead) {
  const std::string bytes("p\0 v", 4);
  const EtcdEntry small = ParseEtcdEntry(InlineEntry(bytes)).value();
  EXPECT_FALSE(small.in_pieces);
  EXPECT_EQ(small.value, bytes);
  EXPECT_EQ(ParseEtcdEntry(InlineEntry(""))->value, "");
  const EtcdEntry large = ParseEtcdEntry(PiecesEntry({"abc", 1ull << 40, 0xffffffffu})).value();
  EXPECT_TRUE(large.in_pieces);
  EXPECT_EQ(large.pieces.id, "abc");
  EXPECT_EQ(large.pieces.bytes, 1ull << 40);
  EXPECT_EQ(large.pieces.checksum, 0xffffffffu);
}

TEST(EtcdValues, WhatIsNoEntryIsDataLoss) {
  for (const char* text : {"", "x", "p", "pabc 1", "pabc 1 x", "pabc -1 1", "pabc 1 1 1"})
    EXPECT_EQ(ParseEtcdEntry(text).status().code(), absl::StatusCode::kDataLoss) << text;
}

TEST(EtcdValues, PagesAreAsLargeAsTheirEntriesLet) {
  int64_t page = kEtcdFirstPage, pages = 0;
  for (int64_t read = 0; read < 100'000; ++pages) {
    read += page;
    page = NextEtcdPage(page, 1000);
  }
  EXPECT_LE(pages, 200);
  EXPECT_EQ(page, kEtcdLargestPage);
  EXPECT_EQ(NextEtcdPage(512, 32 << 10), 256);
  EXPECT_EQ(NextEtcdPage(512, 256 << 10), kEtcdFirstPage);
  EXPECT_EQ(NextEtcdPage(512, 4 << 20), kEtcdFirstPage);
  EXPECT_EQ(NextEtcdPage(64, 0), 128);
}

TEST(EtcdValues, PiecesHaveNamesOfTheirOwnInOrder) {
  EXPECT_NE(NewPiecesId(), NewPiecesId());
  EXPECT_LT(PieceKey("a", 9), PieceKey("a", 10));
}

}  // namespace
}  // namespace stagewright
