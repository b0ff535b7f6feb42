// Which bucket, where, and who asks: from the variables of the environment that other programs of
// the kind read, and from nowhere else.
#pragma once

#include <functional>
#include <string>

#include "common/base/status.h"

namespace stagewright {

struct S3Settings {
  std::string bucket;
  std::string prefix;    // Empty, or what all keys begin with, with a slash at its end.
  std::string endpoint;  // "https://s3.eu-central-1.amazonaws.com", without a slash at its end.
  std::string region;
  std::string access_key, secret_key;
  std::string session_token;  // Empty: none.
  std::string authorities;    // A PEM file; empty: those of the system.

  // For people: "s3://bucket/prefix at https://...".
  std::string Describe() const;
};

// The value of a variable; empty if it is not set.
using ReadVariable = std::function<std::string(const char* name)>;
std::string FromEnvironment(const char* name);

// Takes "s3://BUCKET[/PREFIX]" and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
// AWS_REGION or AWS_DEFAULT_REGION (us-east-1), AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL (Amazon's)
// and AWS_CA_BUNDLE. INVALID_ARGUMENT names what is malformed, FAILED_PRECONDITION what is not set.
absl::StatusOr<S3Settings> MakeS3Settings(const std::string& where,
                                          const ReadVariable& variable = FromEnvironment);

}  // namespace stagewright
