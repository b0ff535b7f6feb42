#include "planner_service/jobs/job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_format.h"
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
  const std::vector<v1::Job> jobs = store_.ReadJobs().value().jobs;
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].name(), "jobs/12");
  EXPECT_FALSE(jobs[0].spec().has_graph());
  v1::Job whole = jobs[0];
  JobParts::Blobs blobs;
  ASSERT_EQ(store_.Complete(whole, blobs), absl::OkStatus());
  EXPECT_GT(whole.spec().graph().nodes_size(), 0) << "with all of its graph";
  const Job read = store_.ReaderOf(12)().value();
  EXPECT_EQ(ToProto(read, GraphDetail::kApart).SerializeAsString(),
            ToProto(job_, GraphDetail::kApart).SerializeAsString());
  EXPECT_EQ(read.graph.seal()->bytes, job_.graph.seal()->bytes);
  EXPECT_EQ(store_.ReaderOf(13)().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(store_.ReadRequests().value(), ElementsAre(Pair("once", "jobs/12")));
  EXPECT_EQ(store_.ReadSteps(job_.number)->ToProto().SerializeAsString(),
            steps_.ToProto().SerializeAsString());
}

TEST_F(JobStoreTest, RemovesAllThatThereIsOfAJob) {
  Job other = job_;
  other.number = 13;
  ASSERT_EQ(store_.Write(other, &steps_, "other", "digest"), absl::OkStatus());
  const std::map<std::string, std::string> before = entries_.Entries();
  ASSERT_EQ(store_.Write(job_, &steps_, "once", "digest"), absl::OkStatus());
  ASSERT_EQ(store_.WriteTrace(job_, {}), absl::OkStatus());
  ASSERT_EQ(store_.WriteLog(job_, {}), absl::OkStatus());
  ASSERT_EQ(store_.WriteRequest("cancel", {"jobs/12", "digest"}), absl::OkStatus());
  EXPECT_THAT(store_.ReadRequests().value(),
              ElementsAre(Pair("cancel", "jobs/12 digest"), Pair("once", "jobs/12 digest"),
                          Pair("other", "jobs/13 digest")));
  EXPECT_EQ(store_.ReadNextNumber().value(), 1);
  ASSERT_EQ(store_.Remove(job_.number, {"once", "cancel"}, 14), absl::OkStatus());
  EXPECT_EQ(store_.ReadNextNumber().value(), 14);
  std::map<std::string, std::string> after = entries_.Entries();
  after.erase("next_job");
  EXPECT_EQ(after, before);
}

TEST_F(JobStoreTest, KnowsNothingThatWasNotWritten) {
  ASSERT_EQ(store_.Write(job_, /*steps=*/nullptr), absl::OkStatus());
  EXPECT_TRUE(store_.ReadRequests()->empty());
  EXPECT_TRUE(store_.ReadSteps(job_.number)->empty());
  EXPECT_EQ(store_.ReadTrace(job_.number).status().code(), absl::StatusCode::kNotFound);
  v1::GetJobTraceResponse trace;
  trace.add_devices("w/cpu0");
  ASSERT_EQ(store_.WriteTrace(job_, trace), absl::OkStatus());
  EXPECT_EQ(store_.ReadTrace(job_.number)->devices(0), "w/cpu0");
  EXPECT_EQ(store_.ReadLog(job_.number, 0)->lines_size(), 0);
  v1::ListJobLogsResponse log;
  for (const int64_t position : {7, 8}) log.add_lines()->set_position(position);
  ASSERT_EQ(store_.WriteLog(job_, log), absl::OkStatus());
  EXPECT_EQ(store_.ReadLog(job_.number, 0)->lines_size(), 2);
  EXPECT_EQ(store_.ReadLog(job_.number, 7)->lines(0).position(), 8);
}

TEST_F(JobStoreTest, ReadsJobsInTheOrderOfTheirNumbers) {
  for (const int64_t number : {100, 9}) {
    job_.number = number;
    ASSERT_EQ(store_.Write(job_, /*steps=*/nullptr), absl::OkStatus());
  }
  EXPECT_EQ(store_.ReadJobs()->jobs.at(0).name(), "jobs/9");
}

// So many ended jobs up to number 12, and job 20, which has not ended.
class EndedJobsInTheStore : public JobStoreTest {
 protected:
  void WriteEnded(int64_t count) {
    job_.state = JobState::kSucceeded;
    for (job_.number = 13 - count; job_.number <= 12; ++job_.number) {
      job_.end_time = absl::FromUnixSeconds(100 + job_.number);
      ASSERT_EQ(store_.Write(job_, /*steps=*/nullptr), absl::OkStatus());
    }
    job_.number = 20;
    job_.state = JobState::kRunning;
    ASSERT_EQ(store_.Write(job_, /*steps=*/nullptr), absl::OkStatus());
  }
  static std::vector<int64_t> Numbers(const std::vector<EndedJob>& jobs) {
    std::vector<int64_t> numbers;
    for (const EndedJob& job : jobs) numbers.push_back(job.number);
    return numbers;
  }
  static std::string JobKey(int64_t number) { return absl::StrFormat("jobs/%012d", number); }
};

TEST_F(EndedJobsInTheStore, AreKnownWithoutBeingRead) {
  WriteEnded(2);
  ASSERT_EQ(entries_.Write({{JobKey(12), "\x0f"}}), absl::OkStatus());  // Nobody sees it.
  const StoredJobs stored = store_.ReadJobs().value();
  EXPECT_THAT(stored.damaged, ElementsAre());
  EXPECT_THAT(Numbers(stored.ended), ElementsAre(11, 12));
  EXPECT_EQ(stored.ended[1].state, JobState::kSucceeded);
  EXPECT_EQ(stored.ended[1].end_time, absl::FromUnixSeconds(112));
  EXPECT_EQ(stored.ended[1].display_name, job_.spec->display_name());
  ASSERT_EQ(stored.jobs.size(), 1u);
  EXPECT_EQ(stored.jobs[0].name(), "jobs/20");
  EXPECT_EQ(stored.last_number, 20);
  EXPECT_EQ(store_.ReadEnded(11)->state, JobState::kSucceeded);
  EXPECT_EQ(store_.ReadEnded(12).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store_.ReadEnded(13).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(EndedJobsInTheStore, OfAProgramThatWroteNoSummariesGetThem) {
  for (const int64_t count : {3, 12}) {  // Few are read one by one.
    entries_.Clear();
    WriteEnded(count);
    std::vector<Mutation> older;
    const std::vector<std::string> keys = entries_.Keys("ended/").value();
    for (const std::string& key : keys) older.push_back({key, std::nullopt});
    ASSERT_EQ(older.size(), static_cast<size_t>(count));
    older.resize(static_cast<size_t>(count) - 1);  // The last one was written by this program.
    ASSERT_EQ(entries_.Write(older), absl::OkStatus());
    const StoredJobs stored = store_.ReadJobs().value();
    std::vector<int64_t> all;
    for (int64_t number = 13 - count; number <= 12; ++number) all.push_back(number);
    EXPECT_EQ(Numbers(stored.ended), all);
    EXPECT_EQ(stored.ended[0].end_time, absl::FromUnixSeconds(100 + 13 - count));
    EXPECT_EQ(stored.jobs.size(), 1u);
    EXPECT_EQ(entries_.Keys("ended/")->size(), static_cast<size_t>(count));
  }
}

TEST_F(EndedJobsInTheStore, SummariesGoWithTheirJobsAndAreMadeAnewIfDamaged) {
  WriteEnded(3);
  ASSERT_EQ(store_.Remove(10, {}, 21), absl::OkStatus());
  ASSERT_EQ(entries_.Write({{JobKey(11), std::nullopt}, {"ended/000000000012", "\x0f"}}),
            absl::OkStatus());
  EXPECT_THAT(Numbers(store_.ReadJobs()->ended), ElementsAre(12));
  EXPECT_THAT(entries_.Keys("ended/").value(), ElementsAre("ended/000000000012"));
  EXPECT_TRUE(IsReadableEntry("ended/000000000012", entries_.Read("ended/000000000012").value()));
}

TEST_F(JobStoreTest, KnowsWhichJobAnEntryIsAbout) {
  EXPECT_EQ(JobOfEntry("jobs/000000000012"), "jobs/12");
  EXPECT_EQ(JobOfEntry("steps/jobs/12"), "jobs/12");
  EXPECT_EQ(JobOfEntry("traces/12"), "jobs/12");
  EXPECT_EQ(JobOfEntry("logs/12"), "jobs/12");
  EXPECT_EQ(JobOfEntry("ended/000000000012"), "jobs/12");
  EXPECT_EQ(JobOfEntry("requests/12"), "");
  EXPECT_EQ(JobOfEntry("jobs/x"), "");
}

TEST_F(JobStoreTest, KnowsWhichEntriesCanBeRead) {
  ASSERT_EQ(store_.Write(job_, &steps_, "once"), absl::OkStatus());
  for (const auto& [key, value] : entries_.Entries())
    EXPECT_TRUE(IsReadableEntry(key, value)) << key;
  const std::string job = entries_.Entries()["jobs/000000000012"];
  EXPECT_FALSE(IsReadableEntry("jobs/000000000013", job));
  EXPECT_FALSE(IsReadableEntry("jobs/000000000012", "\xff"));
  EXPECT_FALSE(IsReadableEntry("steps/jobs/12", "\xff"));
  EXPECT_FALSE(IsReadableEntry("traces/12", "\xff"));
  EXPECT_FALSE(IsReadableEntry("logs/12", "\xff"));
  EXPECT_FALSE(IsReadableEntry("ended/000000000012", "\xff"));
}

TEST_F(JobStoreTest, DamageIsDataLoss) {
  ASSERT_EQ(store_.Write(job_, &steps_), absl::OkStatus());
  ASSERT_EQ(store_.WriteTrace(job_, {}), absl::OkStatus());
  Job other = job_;
  other.number = 13;
  ASSERT_EQ(store_.Remove(other.number, {}, 14), absl::OkStatus());
  std::map<std::string, std::string> damaged = entries_.Entries();
  for (auto& [key, value] : damaged) value = "\x0f";
  entries_.Replace(std::move(damaged));
  const StoredJobs stored = store_.ReadJobs().value();
  EXPECT_TRUE(stored.jobs.empty());
  EXPECT_THAT(stored.damaged, ElementsAre("jobs/000000000012"));
  EXPECT_EQ(stored.last_number, 12);
  EXPECT_TRUE(store_.ReadJobs()->damaged.empty()) << "it was set aside";
  EXPECT_EQ(store_.ReadJobs()->last_number, 12);
  EXPECT_EQ(store_.ReadSteps(job_.number).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store_.ReadTrace(job_.number).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store_.ReadNextNumber().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(JobStoreTest, EveryPlannerTellsOfLargerVersions) {
  const int64_t first = store_.BeginLife({}).value();
  EXPECT_GT(first, 1'000'000'000);
  const int64_t second = JobStore(&entries_).BeginLife({}).value();
  EXPECT_GT(second, first + 1'000'000'000);
  v1::Job old;  // By a program that counted for each job by itself.
  old.set_version(9 * second);
  EXPECT_GT(store_.BeginLife({old}).value(), 9 * second);
}

}  // namespace
}  // namespace stagewright
