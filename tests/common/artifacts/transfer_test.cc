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
  ASSERT_TRUE(RemoveArtifact(*files.store, name).ok());
  EXPECT_EQ(Artifact::Open(files.store, nullptr, name).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(files.directory.File("store/" + DigitsOf(name))));
  EXPECT_TRUE(CheckArtifact(Find(files, other)).ok());
  EXPECT_EQ(RemoveArtifact(*files.store, name).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(RemoveArtifact(*files.store, "sha256:../..").code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Transfer, RemovingAndPuttingMendsWhatIsDamaged) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300));
  for (const std::string& manifest :
       {ReadText(files.ObjectOf(name, "manifest.json")), std::string("{}")}) {
    WriteText(files.ObjectOf(name, "manifest.json"), manifest);
    WriteText(files.ObjectOf(name, "chunk-000002"), "other bytes");
    ASSERT_TRUE(RemoveArtifact(*files.store, name).ok());
    EXPECT_FALSE(std::filesystem::exists(files.directory.File("store/" + DigitsOf(name))));
    EXPECT_EQ(files.Put(SomeText(300)), name);
    EXPECT_TRUE(CheckArtifact(Find(files, name)).ok());
  }
}

// What a removal leaves that was cut off.
TEST(Transfer, RemovesChunksWithoutAManifest) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300));
  // A store that takes one removal after the manifest's.
  class CutOff : public FolderStore {
   public:
    using FolderStore::FolderStore;
    absl::Status Remove(const std::string& key) override {
      return left-- > 0 ? FolderStore::Remove(key) : absl::UnavailableError("cut off");
    }
    int left = 2;
  } store(files.directory.File("store"));
  EXPECT_EQ(RemoveArtifact(store, name).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(std::filesystem::exists(files.directory.File("store/" + DigitsOf(name))));
  ASSERT_TRUE(RemoveArtifact(*files.store, name).ok());
  EXPECT_FALSE(std::filesystem::exists(files.directory.File("store/" + DigitsOf(name))));
}

}  // namespace
}  // namespace stagewright
