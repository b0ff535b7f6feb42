#include "worker_daemon/data/path_roots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/regular_file.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

class PathRootsTest : public ::testing::Test {
 protected:
  PathRootsTest() {
    std::string pattern = ::testing::TempDir() + "/roots-XXXXXX";
    base_ = mkdtemp(pattern.data());
    for (const char* folder : {"data/set", "out", "data-of-others", "secret"})
      fs::create_directories(base_ / folder);
    for (const char* file :
         {"data/set/a.npy", "data/w.safetensors", "secret/key", "data-of-others/x.npy"})
      std::ofstream(base_ / file) << "x";
    fs::create_symlink(base_ / "secret", base_ / "data" / "link");
    fs::create_symlink(base_ / "secret/key", base_ / "data" / "set" / "b.npy");
    roots_ = {base_ / "data", base_ / "out"};
  }
  ~PathRootsTest() override { fs::remove_all(base_); }

  std::string At(const std::string& path) const { return base_ / path; }
  absl::StatusCode Read(const std::string& path) const {
    return CheckReads(roots_, "spec.weights_path", path).code();
  }
  absl::StatusCode ReadData(const std::string& path) const {
    return CheckReadsData(roots_, "spec.data_path", path, {"x", "a"}).code();
  }
  absl::StatusCode Write(const std::string& path) const {
    return CheckWrites(roots_, "spec.output_path", path).code();
  }

  fs::path base_;
  PathRoots roots_;
};

constexpr absl::StatusCode kOk = absl::StatusCode::kOk;
constexpr absl::StatusCode kNo = absl::StatusCode::kPermissionDenied;

TEST_F(PathRootsTest, LetsJobsReadAndWriteWithinThem) {
  EXPECT_EQ(Read(At("data/w.safetensors")), kOk);
  EXPECT_EQ(Read(At("data/not-there-yet")), kOk);
  EXPECT_EQ(Read(At("out/model.safetensors")), kOk);
  EXPECT_EQ(Read(""), kOk);
  EXPECT_EQ(Write(At("out/run-1/checkpoints")), kOk);
  EXPECT_EQ(Write(At("out")), kOk);
}

TEST_F(PathRootsTest, RefusesWhatLiesElsewhere) {
  for (const std::string& path :
       {At("secret/key"), At("data-of-others/x.npy"), At("data/../secret/key"), At("data/link/key"),
        std::string("/etc/passwd"), std::string("etc/passwd"), At("data/../data/w.safetensors"),
        At("secret/not-there")}) {
    EXPECT_EQ(Read(path), kNo) << path;
    EXPECT_EQ(Write(path), kNo) << path;
  }
  EXPECT_EQ(Write(At("data/w.safetensors")), kNo);
  EXPECT_EQ(Write(At("out/../secret")), kNo);
}

TEST_F(PathRootsTest, LinksToWhatIsNotThereLeadWhereTheyLead) {
  fs::create_symlink("later", base_ / "data" / "inside");
  fs::create_symlink(base_ / "data/inside", base_ / "data" / "twice");
  fs::create_symlink("../secret/later", base_ / "data" / "outside");
  fs::create_symlink(base_ / "data/outside", base_ / "data" / "outside-twice");
  fs::create_symlink("around", base_ / "data" / "around");
  fs::create_symlink(base_ / "out/later", base_ / "out" / "run");
  for (const char* path : {"data/inside", "data/inside/w.safetensors", "data/twice"})
    EXPECT_EQ(Read(At(path)), kOk) << path;
  for (const char* path : {"data/outside", "data/outside/key", "data/outside-twice", "data/around"})
    EXPECT_EQ(Read(At(path)), kNo) << path;
  EXPECT_EQ(Write(At("out/run/checkpoints")), kOk);
}

TEST_F(PathRootsTest, ALinkElsewhereThatLeadsIntoThemIsOutside) {
  fs::create_directory_symlink(base_ / "out", base_ / "secret" / "into");
  EXPECT_EQ(Read(At("secret/into/model.safetensors")), kNo);
  EXPECT_EQ(Write(At("secret/into/run")), kNo);
}

TEST_F(PathRootsTest, TheSeparatorAtTheEndOfARootIsNone) {
  roots_ = {At("data/"), At("out/")};
  EXPECT_EQ(Read(At("data/w.safetensors")), kOk);
  EXPECT_EQ(Write(At("out/run")), kOk);
}

// Each path is looked at while it is right, and opened when it is not any more.
TEST_F(PathRootsTest, ALinkThatIsSwappedInAfterTheCheckLeadsNowhere) {
  ASSERT_TRUE(ConfineTo(roots_));
  std::ofstream(base_ / "out" / "key") << "x";
  fs::create_directory(base_ / "data" / "other");
  std::ofstream(base_ / "data" / "other" / "key") << "x";
  const std::vector<std::string> paths = {At("data/w.safetensors"), At("data/other/key")};
  for (const std::string& path : paths) {
    EXPECT_EQ(Read(path), kOk);
    EXPECT_EQ(ReadSmallFile(path, 10).value_or(""), "x");
  }
  EXPECT_EQ(Write(At("out/run/shard")), kOk);
  fs::remove(base_ / "data/w.safetensors");
  fs::create_symlink("../secret/key", base_ / "data/w.safetensors");
  fs::remove_all(base_ / "data/other");
  fs::create_directory_symlink(base_ / "secret", base_ / "data/other");
  fs::create_directory_symlink(base_ / "secret", base_ / "out/run");
  for (const std::string& path : paths) EXPECT_EQ(OpenRegularFile(path).status().code(), kNo);
  EXPECT_EQ(WriteAtomically(At("out/run/shard"), {}).code(), kNo);
  EXPECT_EQ(WriteAtomically(At("out/run/key"), {}).code(), kNo);
  EXPECT_EQ(std::distance(fs::directory_iterator(base_ / "secret"), {}), 1);
  EXPECT_EQ(ReadSmallFile(At("secret/key"), 10).value_or(""), "x");  // What is the worker's own.
  ConfineTo({});
  EXPECT_EQ(ReadSmallFile(paths[0], 10).value_or(""), "x");
}

TEST_F(PathRootsTest, LinksWithinThemAreFollowedWhenFilesAreOpened) {
  ASSERT_TRUE(ConfineTo(roots_));
  fs::create_symlink("w.safetensors", base_ / "data" / "relative");
  fs::create_symlink(base_ / "data/w.safetensors", base_ / "data" / "absolute");
  fs::create_symlink(base_ / "data/absolute", base_ / "out" / "across");
  fs::create_directory_symlink(base_ / "out", base_ / "out" / "run");
  for (const char* path : {"data/relative", "data/absolute", "out/across", "out/run/across"}) {
    EXPECT_EQ(Read(At(path)), kOk) << path;
    EXPECT_EQ(ReadSmallFile(At(path), 10).value_or(""), "x") << path;
  }
  EXPECT_EQ(WriteAtomically(At("out/run/shard"), {}), absl::OkStatus());
  EXPECT_TRUE(fs::exists(base_ / "out/shard"));
  EXPECT_EQ(OpenRegularFile(At("data/gone")).status().code(), absl::StatusCode::kNotFound);
  ConfineTo({});
}

TEST_F(PathRootsTest, ARootThatIsNotThereYetIsWhereItsLinkLeads) {
  fs::create_symlink(base_ / "mounted-later", base_ / "root");
  roots_ = {base_ / "root", base_ / "root"};
  EXPECT_EQ(Read(At("root/w.safetensors")), kOk);
  EXPECT_EQ(Read(At("mounted-later/w.safetensors")), kOk);
  EXPECT_EQ(Read(At("secret/key")), kNo);
}

TEST_F(PathRootsTest, SaysTheSameWhetherThereIsSuchAFile) {
  EXPECT_EQ(CheckReads(roots_, "f", At("secret/key")).message(),
            CheckReads(roots_, "f", At("secret/no-key")).message());
  EXPECT_THAT(std::string(CheckReads(roots_, "spec.weights_path", "/etc/passwd").message()),
              ::testing::HasSubstr("spec.weights_path: outside of the directories"));
}

TEST_F(PathRootsTest, LooksAtEveryFileOfADataSet) {
  EXPECT_EQ(ReadData(At("data/set/a.npy")), kOk);
  EXPECT_EQ(ReadData(At("data/set/a*.npy")), kOk);
  EXPECT_EQ(ReadData(absl::StrCat("x=", At("data/set/a.npy"), ",a=", At("data/set/a.npy"))), kOk);
  EXPECT_EQ(ReadData(At("data/no-set")), kOk);
  for (const std::string& path :
       {At("data/set/*.npy"), At("data/*/key"), At("*/key"), At("data*/x.npy"),
        At("data/*/../../secret/key"), std::string("*"), std::string("/etc/pass*"),
        absl::StrCat("x=", At("data/set/a.npy"), ",a=", At("secret/key"))}) {
    EXPECT_EQ(ReadData(path), kNo) << path;
  }
}

TEST_F(PathRootsTest, HoldsNobodyWithoutThem) {
  roots_ = {};
  EXPECT_EQ(Read("/etc/passwd"), kOk);
  EXPECT_EQ(ReadData("/etc/pass*"), kOk);
  EXPECT_EQ(Write("/etc/passwd"), kOk);
  roots_.output = base_ / "out";
  EXPECT_EQ(Read("/etc/passwd"), kOk);
  EXPECT_EQ(Write("/etc/passwd"), kNo);
}

}  // namespace
}  // namespace stagewright
