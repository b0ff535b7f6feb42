#include "common/base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/common/data/safetensors_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::span<const std::byte>> Pieces(const std::string& a, const std::string& b) {
  return {std::as_bytes(std::span(a)), std::as_bytes(std::span(b))};
}

TEST(AtomicFile, WritesThePiecesInOrderAndReplacesWhatWasThere) {
  const TempDirectory directory;
  const std::string path = directory.File("a");
  ASSERT_TRUE(WriteAtomically(path, Pieces("one ", "two")).ok());
  EXPECT_EQ(ReadBytes(path), "one two");
  ASSERT_TRUE(WriteAtomically(path, Pieces("three", "")).ok());
  EXPECT_EQ(ReadBytes(path), "three");
  EXPECT_THAT(directory.Names(), ElementsAre("a"));
}

TEST(AtomicFile, KeepsThePermissionsOfWhatWasThere) {
  const TempDirectory directory;
  const std::string path = directory.File("a");
  ASSERT_TRUE(WriteAtomically(path, Pieces("one", "")).ok());
  for (const auto mode : {std::filesystem::perms(0600), std::filesystem::perms(0640)}) {
    std::filesystem::permissions(path, mode);
    ASSERT_TRUE(WriteAtomically(path, Pieces("two", "")).ok());
    EXPECT_EQ(std::filesystem::status(path).permissions(), mode);
  }
}

TEST(AtomicFile, ADiskThatTakesNoMoreLeavesTheOldFileWhole) {
  const TempDirectory directory;
  const std::string path = directory.File("a");
  ASSERT_TRUE(WriteAtomically(path, Pieces("old", "")).ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const absl::Status status =
      WriteAtomically(path, Pieces(std::string(900, 'x'), std::string(900, 'y')));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(ReadBytes(path), "old");
  EXPECT_THAT(directory.Names(), ElementsAre("a"));
}

TEST(AtomicFile, ManyWriteTheSamePathAndEachSucceeds) {
  const TempDirectory directory;
  const std::string path = directory.File("a");
  std::vector<std::thread> writers;
  for (char name = 'a'; name < 'i'; ++name) {
    writers.emplace_back([&path, name] {
      for (int i = 0; i < 20; ++i) {
        const absl::Status written = WriteAtomically(path, Pieces(std::string(1000, name), ""));
        EXPECT_TRUE(written.ok()) << written;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = ReadBytes(path);
  EXPECT_EQ(text, std::string(1000, text.front()));
  EXPECT_THAT(directory.Names(), ElementsAre("a"));
}

TEST(AtomicFile, ADirectoryThatIsMissingIsNamed) {
  const TempDirectory directory;
  const std::string path = directory.File("no/such/a");
  EXPECT_THAT(std::string(WriteAtomically(path, Pieces("x", "")).message()), HasSubstr(path));
  EXPECT_THAT(std::string(SyncDirectory(path).message()), HasSubstr(path));
  EXPECT_EQ(SyncDirectory(directory.File("")), absl::OkStatus());
  EXPECT_EQ(SyncDirectory(""), absl::OkStatus());
}

}  // namespace
}  // namespace stagewright
