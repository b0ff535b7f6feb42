#include "common/artifacts/store/s3_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(S3Page, HasTheKeysOfObjectsAndOfPrefixes) {
  const auto page = ParseS3Page(R"(<?xml version="1.0" encoding="UTF-8"?>
    <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
      <Name>bucket</Name><Prefix>some/</Prefix><KeyCount>3</KeyCount><IsTruncated>true</IsTruncated>
      <NextContinuationToken>1ueGcx+Pz/&amp;lt;==</NextContinuationToken>
      <Contents><Key>some/one</Key><Size>7</Size></Contents>
      <Contents><Key>some/&lt;b&gt; &amp; &apos;c&apos;</Key></Contents>
      <CommonPrefixes><Prefix>some/folder/</Prefix></CommonPrefixes>
    </ListBucketResult>)");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(page->keys, ElementsAre("some/one", "some/<b> & 'c'", "some/folder/"));
  EXPECT_EQ(page->next, "1ueGcx+Pz/&lt;==");
}

TEST(S3Page, MayBeEmpty) {
  const auto page = ParseS3Page("<ListBucketResult><Prefix></Prefix></ListBucketResult>");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(page->keys, IsEmpty());
  EXPECT_EQ(page->next, "");
}

TEST(S3Page, AnotherAnswerIsNone) {
  for (const char* answer : {"", "<html></html>", "<ListBucketResult><Contents><Key>cut off</Key>",
                             "</ListBucketResult><ListBucketResult>"}) {
    EXPECT_EQ(ParseS3Page(answer).status().code(), absl::StatusCode::kFailedPrecondition) << answer;
  }
}

TEST(QueryValue, IsEncodedAsSignaturesHaveIt) {
  EXPECT_EQ(QueryValue("aZ09-_.~"), "aZ09-_.~");
  EXPECT_EQ(QueryValue("a/b c+d=&\xc3\xa9"), "a%2Fb%20c%2Bd%3D%26%C3%A9");
}

}  // namespace
}  // namespace stagewright
