#include "common/artifacts/artifacts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/artifacts/stored_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;

TEST(Artifacts, SaysWhichFlagIsMissing) {
  StoredFiles files;
  const std::string name = files.Put("x");
  const auto artifacts = Artifacts::Open({});
  ASSERT_TRUE(artifacts.ok());
  EXPECT_FALSE(artifacts->has_store());
  const absl::Status status = artifacts->Find(name).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(name + ": "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--artifacts"));
  EXPECT_EQ(artifacts->Find("sha256:x").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Artifacts, KeepsWhatItReadUnlessItMayNot) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300)), cache = files.directory.File("cache");
  for (const int64_t mib : {0, 1}) {
    const auto artifacts = Artifacts::Open({files.directory.File("store"), cache, mib});
    ASSERT_TRUE(artifacts.ok()) << artifacts.status();
    EXPECT_EQ(artifacts->folder(), cache);
    const auto artifact = artifacts->Find(name);
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    ASSERT_TRUE(CheckArtifact(*artifact).ok());
    EXPECT_EQ(std::filesystem::exists(cache), mib > 0);
  }
}

TEST(Artifacts, CachesWhereTheUserHasCaches) {
  setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(DefaultArtifactCache(), "/caches/stagewright/artifacts");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/someone", 1);
  EXPECT_EQ(DefaultArtifactCache(), "/someone/.cache/stagewright/artifacts");
}

}  // namespace
}  // namespace stagewright
