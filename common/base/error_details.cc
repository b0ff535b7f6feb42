#include "common/base/error_details.h"

#include <cstdint>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr absl::string_view kField = "stagewright/field";
constexpr absl::string_view kReason = "stagewright/reason";
constexpr absl::string_view kResource = "stagewright/resource";
constexpr absl::string_view kRetryNanos = "stagewright/retry-nanos";

absl::Status With(absl::Status status, absl::string_view key, absl::string_view value) {
  status.SetPayload(key, absl::Cord(value));  // Does nothing to an OK status.
  return status;
}

std::string Read(const absl::Status& status, absl::string_view key) {
  const auto value = status.GetPayload(key);
  return value.has_value() ? std::string(*value) : std::string();
}

}  // namespace

absl::Status WithField(absl::Status status, absl::string_view field) {
  return With(std::move(status), kField, field);
}

absl::Status WithReason(absl::Status status, absl::string_view reason) {
  return With(std::move(status), kReason, reason);
}

absl::Status WithResource(absl::Status status, absl::string_view resource) {
  return With(std::move(status), kResource, resource);
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration after) {
  return With(std::move(status), kRetryNanos, absl::StrCat(absl::ToInt64Nanoseconds(after)));
}

ErrorDetails DetailsOf(const absl::Status& status) {
  ErrorDetails details = {Read(status, kField), Read(status, kReason), Read(status, kResource), {}};
  int64_t nanos = 0;
  if (absl::SimpleAtoi(Read(status, kRetryNanos), &nanos))
    details.retry_after = absl::Nanoseconds(nanos);
  return details;
}

}  // namespace stagewright
