#include "common/artifacts/store/s3_settings.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace stagewright {
namespace {

// Characters that mean themselves in the path of a URL.
bool IsPlain(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' ||
           c == '/';
  });
}

absl::Status SetPlace(const std::string& where, S3Settings& settings) {
  absl::string_view rest = where;
  absl::ConsumePrefix(&rest, "s3://");
  while (absl::ConsumeSuffix(&rest, "/")) {
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  if (absl::StrContains(rest.substr(0, slash), '@')) {  // Not to be repeated in logs.
    return absl::InvalidArgumentError(
        "s3://...@...: credentials are no part of s3://BUCKET/PREFIX; give them in the AWS "
        "variables "
        "of the environment");
  }
  settings.bucket = std::string(rest.substr(0, slash));
  if (slash < rest.size()) settings.prefix = absl::StrCat(rest.substr(slash + 1), "/");
  const bool dots = absl::StrContains(absl::StrCat("/", settings.prefix), "/.");
  if (!settings.bucket.empty() && settings.bucket[0] != '.' && IsPlain(rest) && !dots &&
      !absl::StrContains(rest, "//"))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": not s3://BUCKET/PREFIX of letters, digits, and . - _ that begin no part"));
}

absl::Status SetEndpoint(const std::string& given, S3Settings& settings) {
  settings.endpoint =
      given.empty() ? absl::StrCat("https://s3.", settings.region, ".amazonaws.com") : given;
  while (absl::EndsWith(settings.endpoint, "/")) settings.endpoint.pop_back();
  absl::string_view host = settings.endpoint;
  const bool http = absl::ConsumePrefix(&host, "https://") || absl::ConsumePrefix(&host, "http://");
  if (http && !host.empty() && host.find_first_of("@?# \t\r\n\\") == host.npos)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL: not http(s)://HOST[:PORT]");
}

}  // namespace

std::string S3Settings::Describe() const {
  return absl::StrCat("s3://", bucket, prefix.empty() ? "" : "/", absl::StripSuffix(prefix, "/"),
                      " at ", endpoint);
}

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<S3Settings> MakeS3Settings(const std::string& where, const ReadVariable& variable) {
  const auto first = [&](const char* name, const char* other) {
    const std::string value = variable(name);
    return value.empty() ? variable(other) : value;
  };
  S3Settings settings;
  RETURN_IF_ERROR(SetPlace(where, settings));
  settings.region = first("AWS_REGION", "AWS_DEFAULT_REGION");
  if (settings.region.empty()) settings.region = "us-east-1";
  if (!IsPlain(settings.region) || absl::StrContains(settings.region, "/"))
    return absl::InvalidArgumentError("AWS_REGION or AWS_DEFAULT_REGION: no name of a region");
  RETURN_IF_ERROR(SetEndpoint(first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), settings));
  settings.access_key = variable("AWS_ACCESS_KEY_ID");
  settings.secret_key = variable("AWS_SECRET_ACCESS_KEY");
  settings.session_token = variable("AWS_SESSION_TOKEN");
  settings.authorities = variable("AWS_CA_BUNDLE");
  for (const auto& [name, value] : {std::pair("AWS_ACCESS_KEY_ID", &settings.access_key),
                                    std::pair("AWS_SECRET_ACCESS_KEY", &settings.secret_key)}) {
    if (value->empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(where, ": ", name, " is not set in the environment"));
    }
  }
  return settings;
}

}  // namespace stagewright
