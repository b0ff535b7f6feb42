#include "planner_service/access/watched_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::string> Parse(absl::string_view text) {
  if (text == "wrong") return absl::InvalidArgumentError("is wrong");
  return absl::StrCat("<", text, ">");
}

TEST(WatchedFile, SaysWhatTheFileSaysNow) {
  const std::string path = ::testing::TempDir() + "/watched";
  const auto write = [&](const char* text) { std::ofstream(path, std::ios::trunc) << text; };
  write("a");
  const auto file = WatchedFile<std::string>::Open("--flag", path, &Parse);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto before = (*file)->Get();
  EXPECT_EQ(*before, "<a>");
  EXPECT_EQ((*file)->Get(), before);  // Not read again.
  write("longer");
  EXPECT_EQ(*(*file)->Get(), "<longer>");
  EXPECT_EQ(*before, "<a>");
  write("wrong");
  EXPECT_EQ(*(*file)->Get(), "<longer>");
  std::filesystem::remove(path);
  EXPECT_EQ(*(*file)->Get(), "<longer>");
  write("back");
  EXPECT_EQ(*(*file)->Get(), "<back>");
}

TEST(WatchedFile, NamesFlagAndFile) {
  const std::string path = ::testing::TempDir() + "/wrong";
  std::ofstream(path) << "wrong";
  const auto refusal = [](const std::string& file) {
    return std::string(WatchedFile<std::string>::Open("--flag", file, &Parse).status().message());
  };
  EXPECT_EQ(refusal(path), "--flag " + path + ": is wrong");
  EXPECT_THAT(refusal("/nowhere/file"), HasSubstr("--flag /nowhere/file"));
}

TEST(WatchedFile, PassesOverAByteOrderMark) {
  const std::string path = ::testing::TempDir() + "/watched_mark";
  std::ofstream(path) << "\xef\xbb\xbf"
                      << "a";
  const auto file = WatchedFile<std::string>::Open("--flag", path, &Parse);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->Get(), "<a>");
}

TEST(WatchedFile, WaitsForNoFifo) {
  const std::string path = ::testing::TempDir() + "/watched_fifo";
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto refused = WatchedFile<std::string>::Open("--flag", path, &Parse);
  EXPECT_EQ(refused.status(),
            absl::FailedPreconditionError("--flag " + path + ": not a regular file but a FIFO"));
  std::filesystem::remove(path);
  std::ofstream(path) << "a";
  const auto file = WatchedFile<std::string>::Open("--flag", path, &Parse);
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(*(*file)->Get(), "<a>");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace stagewright
