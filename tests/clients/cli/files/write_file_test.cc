#include "clients/cli/files/write_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace stagewright::cli {
namespace {

TEST(WriteFile, ReplacesAFileWholeOrNotAtAll) {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() /
                                          ("stagewright_write_file_" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  const std::string path = directory / "plan.json";
  ASSERT_EQ(WriteFile(path, "long contents"), absl::OkStatus());
  ASSERT_EQ(WriteFile(path, "short"), absl::OkStatus());
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "short");
  const std::filesystem::directory_iterator left(directory);
  EXPECT_EQ(std::distance(begin(left), end(left)), 1);

  const absl::Status status = WriteFile(directory / "absent/plan.json", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("absent/plan.json: cannot write"));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace stagewright::cli
