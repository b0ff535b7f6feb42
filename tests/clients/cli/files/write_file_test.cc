#include "clients/cli/files/write_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace stagewright::cli {
namespace {

using ::testing::HasSubstr;

class WriteFileTest : public ::testing::Test {
 protected:
  WriteFileTest() { std::filesystem::create_directories(directory_); }
  ~WriteFileTest() override { std::filesystem::remove_all(directory_); }

  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  const std::filesystem::path directory_ = std::filesystem::temp_directory_path() /
                                           ("stagewright_write_file_" + std::to_string(getpid()));
  const std::string path_ = directory_ / "plan.json";
};

TEST_F(WriteFileTest, ReplacesAFileWholeOrNotAtAll) {
  ASSERT_EQ(WriteFile(path_, "long contents"), absl::OkStatus());
  ASSERT_EQ(WriteFile(path_, "short"), absl::OkStatus());
  EXPECT_EQ(Read(path_), "short");
  const std::filesystem::directory_iterator left(directory_);
  EXPECT_EQ(std::distance(begin(left), end(left)), 1);

  const absl::Status status = WriteFile(directory_ / "absent/plan.json", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("absent/plan.json: cannot write"));
}

TEST_F(WriteFileTest, FollowsLinks) {
  const std::filesystem::path link = directory_ / "link", loop = directory_ / "loop";
  std::filesystem::create_symlink("plan.json", link);
  for (const char* text : {"nothing was there", "a file was"}) {
    ASSERT_EQ(WriteFile(link, text), absl::OkStatus());
    EXPECT_EQ(Read(path_), text);
    EXPECT_TRUE(std::filesystem::is_symlink(link));
  }
  EXPECT_EQ(*FileToReplace(link), path_);
  std::filesystem::create_symlink("loop", loop);
  EXPECT_THAT(std::string(WriteFile(loop, "x").message()), HasSubstr("leads nowhere"));
}

TEST_F(WriteFileTest, WritesIntoPipes) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_EQ(WriteFile(path_, "contents"), absl::OkStatus());
  char read_text[16] = {};
  EXPECT_EQ(read(reader, read_text, sizeof(read_text)), 8);
  EXPECT_STREQ(read_text, "contents");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_THAT(std::string(FileToReplace(path_).status().message()), HasSubstr("is no file"));
}

}  // namespace
}  // namespace stagewright::cli
