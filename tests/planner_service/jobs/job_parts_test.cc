#include "planner_service/jobs/job_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner_service/jobs/recording_store.h"
#include "tests/planner_service/jobs/small_spec.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class JobPartsTest : public ::testing::Test {
 protected:
  static v1::Job WithPlan(int depth) {
    v1::Job job;
    *job.mutable_spec() = testing::SmallSpec();
    job.mutable_plan()->set_fingerprint(static_cast<uint64_t>(depth));
    return job;
  }
  JobParts::Change Split(int64_t number, const v1::Job& job, std::vector<Mutation>& batch) const {
    const Seal graph = SealOf(job.spec().graph());
    const Seal plan = SealOf(job.plan());
    return parts_.Split(number, {&graph, &plan, nullptr}, batch);
  }
  // Writes it, and gives back its small part.
  v1::Job Write(int64_t number, v1::Job job) {
    std::vector<Mutation> batch;
    const JobParts::Change change = Split(number, job, batch);
    EXPECT_EQ(store_.Write(batch), absl::OkStatus());
    parts_.Done(change);
    job.mutable_spec()->clear_graph();
    job.clear_plan();
    return job;
  }
  void Delete(int64_t number) {
    std::vector<Mutation> batch;
    const JobParts::Change change = parts_.Drop(store_, number, batch).value();
    EXPECT_EQ(store_.Write(batch), absl::OkStatus());
    parts_.Done(change);
  }
  std::vector<std::string> Blobs() const { return store_.Keys("blobs/").value(); }

  testing::RecordingStore store_;
  JobParts parts_;
};

TEST_F(JobPartsTest, JobsComeBackWhole) {
  const v1::Job whole = WithPlan(3);
  v1::Job small = Write(7, whole);
  JobParts later;
  ASSERT_EQ(later.Load(store_, {}), absl::OkStatus());
  ASSERT_EQ(JobParts::Join(store_, 7, small), absl::OkStatus());
  EXPECT_EQ(small.SerializeAsString(), whole.SerializeAsString());
}

TEST_F(JobPartsTest, WhatJobsShareIsKeptOnceAndAsLongAsOneHasIt) {
  Write(1, WithPlan(1));
  Write(2, WithPlan(1));
  EXPECT_THAT(Blobs(), SizeIs(2)) << "a graph and a plan";
  Write(2, WithPlan(2));
  EXPECT_THAT(Blobs(), SizeIs(3));
  Write(1, WithPlan(2));
  EXPECT_THAT(Blobs(), SizeIs(2)) << "nobody has the first plan any more";
  Delete(1);
  EXPECT_THAT(Blobs(), SizeIs(2));
  JobParts later;
  ASSERT_EQ(later.Load(store_, {}), absl::OkStatus());
  parts_ = later;
  Delete(2);
  EXPECT_THAT(store_.Entries(), IsEmpty());
}

TEST_F(JobPartsTest, OfJobsAtRestAreCountedAndGoWithTheLast) {
  Write(1, WithPlan(1));
  Write(2, WithPlan(1));
  parts_.Rest(1);
  parts_.Rest(2);
  Delete(1);
  EXPECT_THAT(Blobs(), SizeIs(2)) << "the other has them";
  Write(3, WithPlan(1));
  EXPECT_THAT(Blobs(), SizeIs(2));
  Delete(2);
  Delete(3);
  EXPECT_THAT(store_.Entries(), IsEmpty());
}

TEST_F(JobPartsTest, AJobThatMayHaveBeenWrittenTakesNoPartsAlong) {
  Write(1, WithPlan(1));
  const v1::Job job = WithPlan(1);
  std::vector<Mutation> batch;
  const JobParts::Change change = Split(2, job, batch);
  ASSERT_EQ(store_.Write(batch), absl::OkStatus());
  parts_.Doubt(change);  // The store did not say that it was.
  Delete(2);
  EXPECT_THAT(Blobs(), SizeIs(2)) << "the first job has them";
}

TEST_F(JobPartsTest, AFailedWriteChangesNothing) {
  Write(1, WithPlan(1));
  const auto before = store_.Entries();
  const v1::Job job = WithPlan(2);
  std::vector<Mutation> batch;
  Split(1, job, batch);  // Not written.
  Write(1, WithPlan(1));
  EXPECT_EQ(store_.Entries(), before);
}

TEST_F(JobPartsTest, AJobThatWasStoredWholeStaysSo) {
  v1::Job whole = WithPlan(1);
  const std::string bytes = whole.SerializeAsString();
  ASSERT_EQ(parts_.Join(store_, 9, whole), absl::OkStatus());
  EXPECT_EQ(whole.SerializeAsString(), bytes);
}

TEST_F(JobPartsTest, AJobWhoseListOfPartsIsDamagedIsDataLoss) {
  v1::Job small = Write(7, WithPlan(1));
  ASSERT_EQ(store_.Write({{"parts/000000000007", "\x0f"}}), absl::OkStatus());
  JobParts later;
  ASSERT_EQ(later.Load(store_, {}), absl::OkStatus());
  const absl::Status status = JobParts::Join(store_, 7, small);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("parts/000000000007"));
}

TEST_F(JobPartsTest, MissingAndChangedPartsAreNamed) {
  v1::Job small = Write(1, WithPlan(1));
  const std::string blob = Blobs().at(0);
  EXPECT_TRUE(IsPartEntry(blob));
  EXPECT_TRUE(IsWholePart(blob, store_.Read(blob).value()));
  for (const std::optional<std::string>& bad :
       {std::optional<std::string>("x"), std::optional<std::string>()}) {
    ASSERT_EQ(store_.Write({{blob, bad}}), absl::OkStatus());
    const absl::Status status = parts_.Join(store_, 1, small);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(blob));
  }
  EXPECT_FALSE(IsWholePart(blob, "x"));
}

}  // namespace
}  // namespace stagewright
