#include "common/data/mapped_file.h"

#include <gtest/gtest.h>

#include "tests/common/data/safetensors_files.h"

namespace stagewright {
namespace {

using testing::TempDirectory;
using testing::WriteBytes;

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(MappedFile, ShowsAndReadsTheSameBytes) {
  const TempDirectory directory;
  const std::string path = directory.File("data");
  WriteBytes(path, "0123456789");
  const auto file = MappedFile::Open(path).value();
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(Text(file->bytes()), "0123456789");
  std::vector<std::byte> out(4);
  ASSERT_EQ(file->Read(3, out), absl::OkStatus());
  EXPECT_EQ(Text(out), "3456");
}

TEST(MappedFile, SaysWhenTheFileHasBecomeShorter) {
  const TempDirectory directory;
  const std::string path = directory.File("data");
  WriteBytes(path, "0123456789");
  const auto file = MappedFile::Open(path).value();
  std::filesystem::resize_file(path, 5);
  std::vector<std::byte> out(4);
  EXPECT_EQ(file->Read(1, out), absl::OkStatus());
  const absl::Status status = file->Read(3, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(path), std::string::npos) << status;
}

TEST(MappedFile, MayBeEmpty) {
  const TempDirectory directory;
  WriteBytes(directory.File("data"), "");
  EXPECT_TRUE(MappedFile::Open(directory.File("data")).value()->bytes().empty());
}

TEST(MappedFile, OpensOnlyFilesThatAreThere) {
  const TempDirectory directory;
  EXPECT_EQ(MappedFile::Open(directory.File("gone")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::Open(directory.File(".")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagewright
