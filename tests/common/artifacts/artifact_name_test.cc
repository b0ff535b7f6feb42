#include "common/artifacts/artifact_name.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

const std::string kDigits(64, 'a');

TEST(ArtifactName, IsTheHashOfAManifest) {
  const std::string name = ArtifactNameOf("abc");
  EXPECT_EQ(name, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(CheckArtifactName(name).ok());
  EXPECT_EQ(NameOfDigits(DigitsOf(name)), name);
}

TEST(ArtifactName, WhatIsMeantAsANameIsNoPath) {
  EXPECT_TRUE(IsArtifactName("sha256:"));
  EXPECT_TRUE(IsArtifactName("sha256:../x"));
  EXPECT_FALSE(IsArtifactName("/data/sha256:" + kDigits));
  EXPECT_FALSE(IsArtifactName(""));
}

TEST(ArtifactName, OnlyDigitsInLowerCaseAreTaken) {
  EXPECT_TRUE(CheckArtifactName("sha256:" + kDigits).ok());
  for (const std::string& bad :
       {kDigits, "sha256:" + kDigits.substr(1), "sha256:" + kDigits + "a", std::string("sha256:"),
        "sha256:" + kDigits.substr(1) + "A", "sha256:" + kDigits.substr(1) + "g",
        "SHA256:" + kDigits, "sha256:" + kDigits.substr(3) + "/..",
        "sha256:" + kDigits.substr(1) + std::string(1, '\0')}) {
    const absl::Status status = CheckArtifactName(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace stagewright
