#include "common/base/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

TEST(TextFileTest, ReadsWholeFilesAndNamesWhatItCannotRead) {
  const std::string path = ::testing::TempDir() + "/text_file_test";
  const std::string text(200'000, 'x');
  std::ofstream(path, std::ios::binary) << text << '\0' << "y";
  const auto read = ReadTextFile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, text + '\0' + "y");
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_EQ(*ReadTextFile(path), "");
  std::remove(path.c_str());

  const auto missing = ReadTextFile(path);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(path + ": No such file"));
  EXPECT_EQ(ReadTextFile(::testing::TempDir()).status().code(), absl::StatusCode::kNotFound);
}

TEST(TextFileTest, EndlessFilesAreRefused) {
  const auto endless = ReadTextFile("/dev/zero");
  EXPECT_EQ(endless.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(endless.status().message()), "/dev/zero is larger than 64 MiB");
}

}  // namespace
}  // namespace stagewright
