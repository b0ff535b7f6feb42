#include "common/artifacts/positioned_file.h"

#include <gtest/gtest.h>

#include "tests/common/artifacts/stored_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT

TEST(PositionedFile, HasItsNameOnceItIsWhole) {
  const TempDirectory directory;
  const std::string path = directory.File("file");
  WriteText(path, "old");
  {
    auto file = PositionedFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write(3, "def").ok());
    ASSERT_TRUE(file->Write(0, "abc").ok());
    EXPECT_EQ(ReadText(path), "old");
    ASSERT_TRUE(file->Publish().ok());
  }
  EXPECT_EQ(ReadText(path), "abcdef");
  EXPECT_EQ(directory.Names(), std::vector<std::string>{"file"});
}

TEST(PositionedFile, IsGoneUnlessItWasGivenItsName) {
  const TempDirectory directory;
  {
    const auto file = PositionedFile::Create(directory.File("file"));
    ASSERT_TRUE(file->Write(0, "abc").ok());
    EXPECT_EQ(directory.Names().size(), 1u);
  }
  EXPECT_TRUE(directory.Names().empty());
}

TEST(PositionedFile, CanBeReadWithoutAName) {
  const TempDirectory directory;
  auto file = PositionedFile::Create(directory.File("file"));
  ASSERT_TRUE(file->Unname().ok());
  EXPECT_TRUE(directory.Names().empty());
  const PositionedFile moved = *std::move(file);
  ASSERT_TRUE(moved.Write(0, "abc").ok());
  EXPECT_EQ(ReadText(moved.OpenPath()), "abc");
}

TEST(PositionedFile, NeedsADirectory) {
  const TempDirectory directory;
  EXPECT_EQ(PositionedFile::Create(directory.File("none/file")).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stagewright
