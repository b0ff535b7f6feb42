#include "common/artifacts/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/artifacts/artifact_name.h"
#include "tests/common/artifacts/stored_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT

Artifact Find(const StoredFiles& files, const std::string& name) {
  auto artifact = Artifact::Open(files.store, nullptr, name);
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  return *std::move(artifact);
}

TEST(Transfer, GetsWhatWasPut) {
  for (const size_t size : {0, 1, 99, 100, 101, 1000}) {
    StoredFiles files;
    const std::string text = SomeText(size);
    const std::string name = files.Put(text);
    EXPECT_TRUE(CheckArtifactName(name).ok());
    WriteText(files.directory.File("got"), "what was there");
    ASSERT_TRUE(GetArtifact(Find(files, name), files.directory.File("got")).ok());
    EXPECT_EQ(ReadText(files.directory.File("got")), text);
    EXPECT_TRUE(CheckArtifact(Find(files, name)).ok());
  }
}

TEST(Transfer, EqualFilesAreOneArtifact) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300));
  const auto written = std::filesystem::last_write_time(files.ObjectOf(name, "chunk-000000"));
  EXPECT_EQ(files.Put(SomeText(300)), name);
  EXPECT_EQ(std::filesystem::last_write_time(files.ObjectOf(name, "chunk-000000")), written);
  EXPECT_NE(files.Put(SomeText(301)), name);
}

TEST(Transfer, PuttingAgainCompletesWhatWasCutOff) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300));
  for (const std::string object : {"chunk-000002", "manifest.json"})
    std::filesystem::remove(files.ObjectOf(name, object));
  EXPECT_EQ(Artifact::Open(files.store, nullptr, name).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(files.Put(SomeText(300)), name);
  EXPECT_TRUE(CheckArtifact(Find(files, name)).ok());
  WriteText(files.ObjectOf(name, "manifest.json"), "{}");
  EXPECT_EQ(files.Put(SomeText(300)), name);
  EXPECT_TRUE(CheckArtifact(Find(files, name)).ok());
}

TEST(Transfer, WhatIsDamagedIsFoundAndLeavesNothing) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300));
  WriteText(files.ObjectOf(name, "chunk-000001"), SomeText(100));
  EXPECT_EQ(CheckArtifact(Find(files, name)).code(), absl::StatusCode::kDataLoss);
  const std::vector<std::string> before = files.directory.Names();
  EXPECT_EQ(GetArtifact(Find(files, name), files.directory.File("got")).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(files.directory.Names(), before);
}

TEST(Transfer, OnlyFilesArePut) {
  StoredFiles files;
  EXPECT_EQ(PutArtifact(*files.store, files.directory.File("none")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(PutArtifact(*files.store, files.directory.File("")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Transfer, RemovesOneArtifact) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300)), other = files.Put(SomeText(500));
  ASSERT_TRUE(RemoveArtifact(*files.store, Find(files, name)).ok());
  EXPECT_EQ(Artifact::Open(files.store, nullptr, name).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(files.directory.File("store/" + DigitsOf(name))));
  EXPECT_TRUE(CheckArtifact(Find(files, other)).ok());
}

}  // namespace
}  // namespace stagewright
