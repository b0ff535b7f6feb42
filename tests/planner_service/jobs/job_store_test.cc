#include "planner_service/jobs/job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner_service/jobs/job_proto.h"
#include "tests/planner_service/jobs/recording_store.h"
#include "tests/planner_service/jobs/small_spec.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class JobStoreTest : public ::testing::Test {
 protected:
  JobStoreTest() {
    job_.number = 12;
    SetSpec(testing::SmallSpec(), job_);
    v1::JobStep step;
    step.set_step(3);
    step.set_loss(0.5);
    steps_.Add(step);
  }

  testing::RecordingStore entries_;
  JobStore store_{&entries_};
  Job job_;
  StepHistory steps_;
};

TEST_F(JobStoreTest, GivesBackWhatWasWrittenAtOnce) {
  ASSERT_EQ(store_.Write(job_, &steps_, "once"), absl::OkStatus());
  const std::vector<v1::Job> jobs = store_.ReadJobs().value();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].name(), "jobs/12");
  EXPECT_GT(jobs[0].spec().graph().nodes_size(), 0) << "with all of its graph";
  EXPECT_THAT(store_.ReadRequests().value(), ElementsAre(Pair("once", "jobs/12")));
  EXPECT_EQ(store_.ReadSteps(job_)->ToProto().SerializeAsString(),
            steps_.ToProto().SerializeAsString());
}

TEST_F(JobStoreTest, RemovesAllThatThereIsOfAJob) {
  Job other = job_;
  other.number = 13;
  ASSERT_EQ(store_.Write(other, &steps_, "other", "digest"), absl::OkStatus());
  const std::map<std::string, std::string> before = entries_.Entries();
  ASSERT_EQ(store_.Write(job_, &steps_, "once", "digest"), absl::OkStatus());
  ASSERT_EQ(store_.WriteTrace(job_, {}), absl::OkStatus());
  ASSERT_EQ(store_.WriteRequest("cancel", {"jobs/12", "digest"}), absl::OkStatus());
  EXPECT_THAT(store_.ReadRequests().value(),
              ElementsAre(Pair("cancel", "jobs/12 digest"), Pair("once", "jobs/12 digest"),
                          Pair("other", "jobs/13 digest")));
  EXPECT_EQ(store_.ReadNextNumber().value(), 1);
  ASSERT_EQ(store_.Remove(job_, {"once", "cancel"}, 14), absl::OkStatus());
  EXPECT_EQ(store_.ReadNextNumber().value(), 14);
  std::map<std::string, std::string> after = entries_.Entries();
  after.erase("next_job");
  EXPECT_EQ(after, before);
}

TEST_F(JobStoreTest, KnowsNothingThatWasNotWritten) {
  ASSERT_EQ(store_.Write(job_, /*steps=*/nullptr), absl::OkStatus());
  EXPECT_TRUE(store_.ReadRequests()->empty());
  EXPECT_TRUE(store_.ReadSteps(job_)->empty());
  EXPECT_EQ(store_.ReadTrace(job_).status().code(), absl::StatusCode::kNotFound);
  v1::GetJobTraceResponse trace;
  trace.add_devices("w/cpu0");
  ASSERT_EQ(store_.WriteTrace(job_, trace), absl::OkStatus());
  EXPECT_EQ(store_.ReadTrace(job_)->devices(0), "w/cpu0");
}

TEST_F(JobStoreTest, ReadsJobsInTheOrderOfTheirNumbers) {
  for (const int64_t number : {100, 9}) {
    job_.number = number;
    ASSERT_EQ(store_.Write(job_, /*steps=*/nullptr), absl::OkStatus());
  }
  EXPECT_EQ(store_.ReadJobs()->at(0).name(), "jobs/9");
}

TEST_F(JobStoreTest, DamageIsDataLoss) {
  ASSERT_EQ(store_.Write(job_, &steps_), absl::OkStatus());
  ASSERT_EQ(store_.WriteTrace(job_, {}), absl::OkStatus());
  Job other = job_;
  other.number = 13;
  ASSERT_EQ(store_.Remove(other, {}, 14), absl::OkStatus());
  std::map<std::string, std::string> damaged = entries_.Entries();
  for (auto& [key, value] : damaged) value = "\x0f";
  entries_.Replace(std::move(damaged));
  EXPECT_EQ(store_.ReadJobs().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store_.ReadSteps(job_).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store_.ReadTrace(job_).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store_.ReadNextNumber().status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace stagewright
