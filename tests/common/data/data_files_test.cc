#include "common/data/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/data/safetensors_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataFilesTest : public ::testing::Test {
 protected:
  std::string Touch(const std::string& name) {
    const std::string path = directory_.File(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    WriteBytes(path, "");
    return path;
  }
  // Without the directory.
  std::vector<std::string> Files(const std::string& path, const std::string& input) {
    const auto files = DataFilesOf(path, input);
    EXPECT_TRUE(files.ok()) << files.status();
    std::vector<std::string> names;
    for (const std::string& file : files.value_or(std::vector<std::string>()))
      names.push_back(file.substr(directory_.File("").size()));
    return names;
  }
  const TempDirectory directory_;
};

TEST_F(DataFilesTest, OneFileIsThatOfEveryInput) {
  const std::string path = Touch("a.safetensors");
  EXPECT_THAT(Files(path, "x"), ElementsAre("a.safetensors"));
  // Missing ones are found out when they are opened.
  EXPECT_TRUE(DataFilesOf(directory_.File("none.safetensors"), "x").ok());
}

TEST_F(DataFilesTest, GlobsAndDirectoriesAreSortedByName) {
  for (const char* name : {"d/s-2.safetensors", "d/s-10.safetensors", "d/s-1.safetensors",
                           "d/.hidden.safetensors", "d/notes.txt"})
    Touch(name);
  const std::vector<std::string> sorted = {"d/s-1.safetensors", "d/s-10.safetensors",
                                           "d/s-2.safetensors"};
  EXPECT_EQ(Files(directory_.File("d"), "x"), sorted);
  EXPECT_EQ(Files(directory_.File("d/*.safetensors"), "x"), sorted);
  EXPECT_THAT(Files(directory_.File("d/s-1*"), "x"),
              ElementsAre("d/s-1.safetensors", "d/s-10.safetensors"));
}

TEST_F(DataFilesTest, DirectoriesHaveNpyFilesPerInput) {
  for (const char* name : {"d/x.npy", "d/y-00.npy", "d/y-01.npy", "d/z/b.npy", "d/z/a.npy"})
    Touch(name);
  EXPECT_THAT(Files(directory_.File("d"), "x"), ElementsAre("d/x.npy"));
  EXPECT_THAT(Files(directory_.File("d"), "y"), ElementsAre("d/y-00.npy", "d/y-01.npy"));
  EXPECT_THAT(Files(directory_.File("d"), "z"), ElementsAre("d/z/a.npy", "d/z/b.npy"));
  EXPECT_THAT(std::string(DataFilesOf(directory_.File("d"), "w").status().message()),
              HasSubstr("no file with samples of input \"w\""));
}

TEST_F(DataFilesTest, PairsNameFilesGlobsAndDirectories) {
  for (const char* name : {"x.npy", "y/1.npy", "y/0.npy", "z-1.npy", "z-0.npy"}) Touch(name);
  const std::string path = "x=" + directory_.File("x.npy") + ",y=" + directory_.File("y") +
                           ",z=" + directory_.File("z-*.npy");
  EXPECT_THAT(Files(path, "x"), ElementsAre("x.npy"));
  EXPECT_THAT(Files(path, "y"), ElementsAre("y/0.npy", "y/1.npy"));
  EXPECT_THAT(Files(path, "z"), ElementsAre("z-0.npy", "z-1.npy"));
  EXPECT_THAT(std::string(DataFilesOf(path, "w").status().message()),
              HasSubstr("no file is given for \"w\""));
}

TEST_F(DataFilesTest, AnEqualsSignInAPathIsNoPair) {
  const std::string path = Touch("lr=1/a.safetensors");
  EXPECT_THAT(Files(path, "x"), ElementsAre("lr=1/a.safetensors"));
  EXPECT_THAT(Files(directory_.File("lr=1/*"), "x"), ElementsAre("lr=1/a.safetensors"));
}

}  // namespace
}  // namespace stagewright
