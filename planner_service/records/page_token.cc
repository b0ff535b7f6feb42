#include "planner_service/records/page_token.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/artifacts/content_hash.h"
#include "common/training/field_check.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {
namespace {

constexpr absl::string_view kOrder = "newest first ";
constexpr size_t kDigits = 16;

}  // namespace

std::string PageToken(int64_t before, const v1::ListJobsRequest& request) {
  v1::ListJobsRequest filters = request;
  filters.clear_page_size();
  filters.clear_page_token();
  const std::string digest = ContentHash(absl::StrCat(kOrder, filters.SerializeAsString()));
  return absl::StrCat(before, ".", digest.substr(0, kDigits));
}

absl::StatusOr<int64_t> NumberOfPage(const v1::ListJobsRequest& request) {
  const absl::string_view token = request.page_token();
  if (token.empty()) return std::numeric_limits<int64_t>::max();
  int64_t before = 0;
  // Made again, it is the same: no other way to write the number is taken.
  if (absl::SimpleAtoi(token.substr(0, token.find('.')), &before) && before > 0 &&
      token == PageToken(before, request))
    return before;
  return WrongField("", "page_token", "\"", token, "\" was not made by ListJobs for these filters");
}

}  // namespace stagewright
