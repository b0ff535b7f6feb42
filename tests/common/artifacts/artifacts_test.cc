#include "common/artifacts/artifacts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/artifacts/artifact_name.h"
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

TEST(Artifacts, ListsWhatIsThereByName) {
  StoredFiles files;
  std::map<std::string, uint64_t> sizes;
  for (const size_t size : {1, 150, 1000}) sizes[files.Put(SomeText(size))] = size;
  const std::string part = files.Put("part"), damaged = files.Put("damaged");
  std::filesystem::remove(files.ObjectOf(part, "manifest.json"));
  WriteText(files.ObjectOf(damaged, "manifest.json"), "{}");
  const std::string none = ArtifactNameOf("{}");  // Has its hash, but is no manifest.
  ASSERT_TRUE(files.store->Write(DigitsOf(none) + "/manifest.json", "{}").ok());
  ASSERT_TRUE(files.store->Write("somebody/else", "x").ok());
  ASSERT_TRUE(files.store->Write(std::string(64, 'a'), "x").ok());
  const auto artifacts = Artifacts::Open({files.directory.File("store"), "", 0});
  const auto listed = artifacts->List();
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_TRUE(std::is_sorted(listed->begin(), listed->end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  ASSERT_EQ(listed->size(), sizes.size() + 2);
  for (const StoredArtifact& artifact : *listed) {
    const auto size = sizes.find(artifact.name);
    EXPECT_EQ(artifact.size, size == sizes.end() ? std::nullopt : std::optional(size->second));
    EXPECT_TRUE(size != sizes.end() || artifact.name == damaged || artifact.name == none);
  }
  EXPECT_EQ(Artifacts().List().status().code(), absl::StatusCode::kFailedPrecondition);
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
