#include "common/artifacts/store/artifact_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

TEST(ArtifactStore, IsAFolderOrABucket) {
  const auto folder = OpenArtifactStore("/mnt/artifacts");
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ((*folder)->where(), "/mnt/artifacts");
  for (const std::string bad : {"http://host/x", "gs://bucket", "file:///x"}) {
    const auto store = OpenArtifactStore(bad);
    EXPECT_EQ(store.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(store.status().message()), HasSubstr(bad));
  }
}

}  // namespace
}  // namespace stagewright
