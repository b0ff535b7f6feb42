#include "common/artifacts/store/folder_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/artifacts/stored_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT

TEST(FolderStore, ReadsWhatWasWritten) {
  const TempDirectory directory;
  FolderStore store(directory.File("store"));
  ASSERT_TRUE(store.Write("a/one", "1").ok());
  ASSERT_TRUE(store.Write("a/two", std::string("2\0", 2)).ok());
  ASSERT_TRUE(store.Write("a/one", "11").ok());  // In its place.
  EXPECT_EQ(*store.Read("a/one", 2, nullptr), "11");
  EXPECT_EQ(*store.Read("a/two", 100, nullptr), std::string("2\0", 2));
  EXPECT_TRUE(*store.Has("a/one"));
  EXPECT_FALSE(*store.Has("a/three"));
  EXPECT_FALSE(*store.Has("b/one"));
  EXPECT_EQ(store.Read("a/three", 100, nullptr).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.Read("a/one", 1, nullptr).status().code(), absl::StatusCode::kDataLoss);
}

TEST(FolderStore, RemovesTheFolderWithItsLastObject) {
  const TempDirectory directory;
  FolderStore store(directory.File("store"));
  ASSERT_TRUE(store.Write("a/one", "1").ok());
  ASSERT_TRUE(store.Write("a/two", "2").ok());
  ASSERT_TRUE(store.Remove("a/one").ok());
  EXPECT_FALSE(*store.Has("a/one"));
  EXPECT_TRUE(*store.Has("a/two"));
  ASSERT_TRUE(store.Remove("a/one").ok());
  ASSERT_TRUE(store.Remove("a/two").ok());
  EXPECT_FALSE(std::filesystem::exists(directory.File("store/a")));
}

TEST(FolderStore, ListsObjectsAndFoldersInOrder) {
  const TempDirectory directory;
  FolderStore store(directory.File("store"));
  for (const std::string key : {"b/two", "b/one", "a/x/y", "a-b", "a/z"})
    ASSERT_TRUE(store.Write(key, "1").ok());
  EXPECT_THAT(*store.List(""), ::testing::ElementsAre("a-b", "a/", "b/"));
  EXPECT_THAT(*store.List("a/"), ::testing::ElementsAre("x/", "z"));
  EXPECT_THAT(*store.List("b/"), ::testing::ElementsAre("one", "two"));
  EXPECT_THAT(*store.List("c/"), ::testing::IsEmpty());
  EXPECT_THAT(*store.List("a-b/"), ::testing::IsEmpty());  // An object.
}

TEST(FolderStore, OneThatIsNotMountedIsUnavailable) {
  const TempDirectory directory;
  const FolderStore store(directory.File("store"));
  const auto bytes = store.Read("a/one", 100, nullptr);
  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(bytes.status().message()), ::testing::HasSubstr(store.where()));
  EXPECT_EQ(store.List("").status().code(), absl::StatusCode::kUnavailable);
}

TEST(FolderStore, NothingIsReadForWhoHasGivenUp) {
  const TempDirectory directory;
  FolderStore store(directory.File("store"));
  ASSERT_TRUE(store.Write("a/one", "1").ok());
  EXPECT_EQ(store.Read("a/one", 1, [] { return true; }).status().code(),
            absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace stagewright
