#include "common/base/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace stagewright {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class RegularFileTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ::testing::TempDir() + "regular_file_" + std::to_string(getpid()) + name;
  }
  static absl::StatusOr<std::string> Read(const std::string& path) {
    std::string text;
    RETURN_IF_ERROR(ReadRegularFile(
        path, [&text](std::span<const char> block) { text.append(block.data(), block.size()); }));
    return text;
  }
};

TEST_F(RegularFileTest, ReadsAllOfIt) {
  const std::string path = Path("long"), text((size_t{3} << 20) + 5, 'x');
  std::ofstream(path) << text;
  const auto read = Read(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, text);
  std::filesystem::remove(path);
}

TEST_F(RegularFileTest, NamesTheWayFromARoot) {
  EXPECT_EQ(PathBelow("/a/b", "/a/b/c/d"), "./c/d");
  EXPECT_EQ(PathBelow("/a/b/", "/a/b/./c/"), "./c");
  EXPECT_EQ(PathBelow("/a/b", "/a/b"), ".");
  EXPECT_EQ(PathBelow("/", "/a"), "./a");
  EXPECT_EQ(PathBelow(".", "a"), "./a");
  for (const char* path : {"/a", "/a/bc", "/a/b/../c", "b", "/"})
    EXPECT_EQ(PathBelow("/a/b", path), std::nullopt) << path;
}

TEST_F(RegularFileTest, RootsThatNameTheWayAreAskedFirst) {
  const std::vector<std::string> roots = {"/slow/data", "/a", "/slow", "/a/out"};
  EXPECT_THAT(NamedFirst(roots, "/a/out/x"), ElementsAre("/a", "/a/out", "/slow/data", "/slow"));
  EXPECT_THAT(NamedFirst(roots, "/slow/data2"), ElementsAre("/slow", "/slow/data", "/a", "/a/out"));
  EXPECT_THAT(NamedFirst(roots, "/b"), ElementsAreArray(roots));
}

TEST_F(RegularFileTest, ARootThatLeadsNowhereHasNothingBelowIt) {
  const std::string root = Path("circle");
  std::filesystem::create_symlink(root, root);
  EXPECT_EQ(PathBelow(root, "/a"), std::nullopt);
  std::filesystem::remove(root);
}

TEST_F(RegularFileTest, AFifoIsRefusedAndNotWaitedFor) {
  const std::string path = Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto read = Read(path);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(read.status().message()), AllOf(HasSubstr(path), HasSubstr("a FIFO")));
  std::filesystem::remove(path);
}

TEST_F(RegularFileTest, SoAreDevicesAndDirectories) {
  EXPECT_THAT(std::string(Read("/dev/zero").status().message()),
              HasSubstr("/dev/zero: not a regular file but a device"));
  EXPECT_THAT(std::string(Read("/tmp").status().message()), HasSubstr("but a directory"));
}

TEST_F(RegularFileTest, OneThatIsNotThereIsNamed) {
  const std::string path = Path("missing");
  const auto read = Read(path);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(path));
}

}  // namespace
}  // namespace stagewright
