#include "planner_service/jobs/request_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error_details.h"
#include "stagewright/v1/job_service.pb.h"
#include "tests/planner_service/jobs/small_spec.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(RequestBook, KnowsARequestByIdAndContent) {
  v1::JobSpec spec = testing::SmallSpec(), other = spec;
  other.set_steps(spec.steps() + 1);
  EXPECT_EQ(DigestOf(spec), DigestOf(testing::SmallSpec()));
  EXPECT_NE(DigestOf(spec), DigestOf(other));
  EXPECT_NE(DigestOfCancel("jobs/1"), DigestOfCancel("jobs/2"));
  EXPECT_EQ(DigestOf(spec).size(), 32u);

  RequestBook book;
  book.Add("once", {"jobs/7", DigestOf(spec)});
  ASSERT_TRUE(book.Find("once", DigestOf(spec)).ok());
  EXPECT_EQ((*book.Find("once", DigestOf(spec)))->job, "jobs/7");
  EXPECT_EQ(*book.Find("twice", DigestOf(spec)), nullptr);
  const absl::Status reused = book.Find("once", DigestOf(other)).status();
  EXPECT_EQ(reused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(reused.message()), HasSubstr("\"once\""));
  EXPECT_EQ(DetailsOf(reused).reason, "REQUEST_ID_REUSED");
  EXPECT_EQ(DetailsOf(reused).resource, "jobs/7");
}

TEST(RequestBook, AnEmptyIdIsNone) {
  RequestBook book;
  book.Add("", {"jobs/7", "digest"});
  EXPECT_EQ(*book.Find("", "digest"), nullptr);
}

TEST(RequestBook, IsReadFromTheStoreAlsoOfAnOlderProgram) {
  RequestBook book;
  book.Load({{"new", ToText({"jobs/7", "0123"})}, {"old", "jobs/3"}});
  EXPECT_EQ((*book.Find("new", "0123"))->job, "jobs/7");
  EXPECT_FALSE(book.Find("new", "4567").ok());
  EXPECT_EQ((*book.Find("old", "anything"))->job, "jobs/3");
}

TEST(RequestBook, ForgetsTheRequestsOfAJob) {
  RequestBook book;
  book.Add("submit", {"jobs/7", "a"});
  book.Add("cancel", {"jobs/7", "b"});
  book.Add("other", {"jobs/8", "c"});
  EXPECT_THAT(book.IdsOf("jobs/7"), ElementsAre("cancel", "submit"));
  book.Forget(book.IdsOf("jobs/7"));
  EXPECT_THAT(book.IdsOf("jobs/7"), IsEmpty());
  EXPECT_EQ(*book.Find("submit", "other"), nullptr);
  EXPECT_NE(*book.Find("other", "c"), nullptr);
}

TEST(RequestBook, AnIdThatIsGivenAnewIsNoLongerTheFirstJobs) {
  RequestBook book;
  book.Load({{"id", "jobs/7 a"}, {"other", "jobs/7 b"}});
  book.Add("id", {"jobs/9", "c"});
  EXPECT_THAT(book.IdsOf("jobs/7"), ElementsAre("other"));
  EXPECT_THAT(book.IdsOf("jobs/9"), ElementsAre("id"));
  book.Forget({"unknown", "other"});
  EXPECT_THAT(book.IdsOf("jobs/7"), IsEmpty());
  EXPECT_TRUE(book.Knows("id"));
}

}  // namespace
}  // namespace stagewright
