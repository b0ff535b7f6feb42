#include "common/base/error_details.h"

#include <cerrno>
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
constexpr absl::string_view kStorage = "stagewright/storage";

bool MayPass(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:  // A limit of the process or its user.
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
    case ENOTCONN:
    case EHOSTDOWN:
    case EHOSTUNREACH:
      return true;
    default:
      return false;
  }
}

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

absl::Status WithSystemError(absl::Status status, int error) {
  return MayPass(error) ? WithStorageFault(std::move(status)) : status;
}

absl::Status WithStorageFault(absl::Status status) { return With(std::move(status), kStorage, ""); }

bool IsOfStorage(const absl::Status& status) { return status.GetPayload(kStorage).has_value(); }

ErrorDetails DetailsOf(const absl::Status& status) {
  ErrorDetails details = {Read(status, kField), Read(status, kReason), Read(status, kResource), {}};
  int64_t nanos = 0;
  if (absl::SimpleAtoi(Read(status, kRetryNanos), &nanos))
    details.retry_after = absl::Nanoseconds(nanos);
  return details;
}

}  // namespace stagewright
