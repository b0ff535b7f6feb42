#include "common/artifacts/store/s3_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

const Variables kKeys = {{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "key"}};

absl::StatusOr<S3Settings> Make(const std::string& where, Variables variables = kKeys) {
  return MakeS3Settings(where, [&](const char* name) { return variables[name]; });
}

Variables With(Variables more) {
  more.insert(kKeys.begin(), kKeys.end());
  return more;
}

TEST(S3Settings, ABucketMayHaveAPrefix) {
  const auto bucket = Make("s3://models"), prefix = Make("s3://models/team-a/v1.0/");
  ASSERT_TRUE(bucket.ok()) << bucket.status();
  EXPECT_EQ(bucket->bucket, "models");
  EXPECT_EQ(bucket->prefix, "");
  EXPECT_EQ(bucket->Describe(), "s3://models at https://s3.us-east-1.amazonaws.com");
  EXPECT_EQ(prefix->bucket, "models");
  EXPECT_EQ(prefix->prefix, "team-a/v1.0/");
  EXPECT_EQ(prefix->Describe(), "s3://models/team-a/v1.0 at https://s3.us-east-1.amazonaws.com");
}

TEST(S3Settings, WhatWouldNotMeanItselfInAUrlIsRefused) {
  for (const std::string bad :
       {"s3://", "s3:///x", "s3://..", "s3://a/../b", "s3://a//b", "s3://a?b", "s3://a/b%2f",
        "s3://a b", "s3://user@host/b", "s3://a/.hidden"}) {
    EXPECT_EQ(Make(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(S3Settings, ErrorsDoNotRepeatCredentialsOfABucket) {
  const absl::Status status = Make("s3://id:secret@bucket/b").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("AWS variables of the environment"));
  EXPECT_EQ(status.message().find("secret"), absl::string_view::npos);
}

TEST(S3Settings, TheEnvironmentSaysWhereAndWho) {
  const auto settings = Make("s3://models", With({{"AWS_SESSION_TOKEN", "token"},
                                                  {"AWS_DEFAULT_REGION", "eu-north-1"},
                                                  {"AWS_ENDPOINT_URL", "http://127.0.0.1:9000/"},
                                                  {"AWS_CA_BUNDLE", "/ca.pem"}}));
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->access_key, "id");
  EXPECT_EQ(settings->secret_key, "key");
  EXPECT_EQ(settings->session_token, "token");
  EXPECT_EQ(settings->region, "eu-north-1");
  EXPECT_EQ(settings->endpoint, "http://127.0.0.1:9000");
  EXPECT_EQ(settings->authorities, "/ca.pem");
  const auto other = Make("s3://models", With({{"AWS_REGION", "a"},
                                               {"AWS_DEFAULT_REGION", "b"},
                                               {"AWS_ENDPOINT_URL", "http://one"},
                                               {"AWS_ENDPOINT_URL_S3", "http://two"}}));
  EXPECT_EQ(other->region, "a");
  EXPECT_EQ(other->endpoint, "http://two");
}

TEST(S3Settings, SaysWhichVariableIsWrongAndNoSecret) {
  for (const std::string endpoint :
       {"127.0.0.1:9000", "ftp://host", "http://", "http://id:secret@host", "http://host/?x",
        "http://host\r\nx: y"}) {
    const absl::Status status = Make("s3://m", With({{"AWS_ENDPOINT_URL", endpoint}})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << endpoint;
    EXPECT_THAT(std::string(status.message()), HasSubstr("AWS_ENDPOINT_URL"));
    EXPECT_EQ(status.message().find("secret"), absl::string_view::npos);
  }
  EXPECT_EQ(Make("s3://m", With({{"AWS_REGION", "a:b"}})).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const std::string missing : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) {
    Variables variables = kKeys;
    variables.erase(missing);
    const absl::Status status = Make("s3://m", variables).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(missing));
  }
}

}  // namespace
}  // namespace stagewright
