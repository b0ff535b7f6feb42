// Where a page of ListJobs goes on, as clients hand it back: "NUMBER.DIGEST". The digest is of what
// was asked, so that no token tells a place in another list.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace stagewright {

namespace v1 {
class ListJobsRequest;
}  // namespace v1

// For the page of jobs with numbers below `before` that comes next. The size of pages may change.
std::string PageToken(int64_t before, const v1::ListJobsRequest& request);

// What the request's token was made of; the largest number without one. INVALID_ARGUMENT names
// page_token unless it is what PageToken makes for a request with the same filters. No secret: a
// token shows no more than its request does.
absl::StatusOr<int64_t> NumberOfPage(const v1::ListJobsRequest& request);

}  // namespace stagewright
