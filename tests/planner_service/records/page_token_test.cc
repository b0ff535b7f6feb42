#include "planner_service/records/page_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {
namespace {

v1::ListJobsRequest Filtered() {
  v1::ListJobsRequest request;
  request.set_page_size(2);
  request.add_states(v1::JOB_STATE_RUNNING);
  request.set_display_name_contains("night");
  return request;
}

void ExpectRefused(const v1::ListJobsRequest& request) {
  const absl::Status status = NumberOfPage(request).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << request.page_token() << ": " << status;
  EXPECT_EQ(DetailsOf(status).field, "page_token");
}

TEST(PageToken, SaysWhereThePageBegins) {
  v1::ListJobsRequest request = Filtered();
  EXPECT_EQ(*NumberOfPage(request), std::numeric_limits<int64_t>::max());
  request.set_page_token(PageToken(7, request));
  EXPECT_THAT(request.page_token(), ::testing::MatchesRegex("7\\.[0-9a-f]{16}"));
  EXPECT_EQ(*NumberOfPage(request), 7);
  request.set_page_size(100);
  EXPECT_EQ(*NumberOfPage(request), 7);
  EXPECT_EQ(PageToken(7, request), request.page_token());  // Whatever the request's own token is.
}

TEST(PageToken, OfOtherFiltersIsRefused) {
  using Change = std::function<void(v1::ListJobsRequest&)>;
  const Change changes[] = {
      [](v1::ListJobsRequest& request) { request.add_states(v1::JOB_STATE_FAILED); },
      [](v1::ListJobsRequest& request) { request.clear_states(); },
      [](v1::ListJobsRequest& request) { request.set_display_name_contains("day"); },
      [](v1::ListJobsRequest& request) { request.set_owner("ada"); },
      [](v1::ListJobsRequest& request) { request.set_tenant("vision"); }};
  for (const Change& change : changes) {
    v1::ListJobsRequest request = Filtered();
    request.set_page_token(PageToken(7, request));
    change(request);
    ExpectRefused(request);
  }
}

TEST(PageToken, InNoOtherFormIsTaken) {
  v1::ListJobsRequest request = Filtered();
  const std::string digest = PageToken(7, request).substr(1);
  for (const char* number : {"-5", "+7", " 7", "07", "0", "7.0", "", "8x", "9223372036854775808"}) {
    request.set_page_token(absl::StrCat(number, digest));
    ExpectRefused(request);
  }
  for (const std::string& token : {std::string("7"), std::string("x"), "7" + digest + " ",
                                   "7" + digest.substr(0, 9), std::string("7.")}) {
    request.set_page_token(token);
    ExpectRefused(request);
  }
}

}  // namespace
}  // namespace stagewright
