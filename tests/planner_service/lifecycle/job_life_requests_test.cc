// What clients ask for: ids of requests, output paths, lists, and jobs that are forgotten.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "common/base/error_details.h"
#include "planner_service/lifecycle/job_manager.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobHarness;
using ::testing::Pair;
using testing::RecordingStore;
using testing::SmallSpec;

v1::JobSpec SpecAt(const std::string& output) {
  v1::JobSpec spec = SmallSpec();
  spec.set_output_path(output);
  return spec;
}

class JobLifeRequestsTest : public ::testing::Test {
 protected:
  void Restart(JobManagerOptions options = {}) {
    harness_->jobs->Suspend();
    harness_ = std::make_unique<JobHarness>(&store_, std::move(options));
  }
  absl::Status Submit(const v1::JobSpec& spec, const std::string& id = "") {
    return harness_->jobs->Submit(spec, id).status();
  }
  // Jobs that were submitted and cancelled.
  std::vector<std::string> Ended(int count) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) {
      names.push_back(harness_->Submit(SmallSpec()));
      EXPECT_TRUE(harness_->jobs->Cancel(names.back()).ok());
    }
    return names;
  }
  std::vector<std::string> Names(const std::vector<v1::Job>& jobs) const {
    std::vector<std::string> names;
    for (const v1::Job& job : jobs) names.push_back(job.name());
    return names;
  }

  RecordingStore store_;
  std::unique_ptr<JobHarness> harness_ = std::make_unique<JobHarness>(&store_);
};

TEST_F(JobLifeRequestsTest, AnIdWithAnotherSpecIsRefusedAlsoAfterARestart) {
  v1::JobSpec other = SmallSpec();
  other.set_steps(SmallSpec().steps() + 1);
  ASSERT_TRUE(Submit(SmallSpec(), "id").ok());
  for (int planner = 0; planner < 2; ++planner) {
    EXPECT_EQ(harness_->jobs->Submit(SmallSpec(), "id")->name(), "jobs/1");
    const absl::Status reused = Submit(other, "id");
    EXPECT_EQ(reused.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(DetailsOf(reused).reason, "REQUEST_ID_REUSED");
    EXPECT_EQ(DetailsOf(reused).resource, "jobs/1");
    Restart();
  }
  EXPECT_EQ(harness_->List().size(), 1u);
}

TEST_F(JobLifeRequestsTest, ACancelThatIsRepeatedIsAnsweredAsTheFirst) {
  const std::string job = harness_->Submit(SmallSpec()), other = harness_->Submit(SmallSpec());
  ASSERT_TRUE(harness_->jobs->Cancel(job, "id").ok());
  Restart();
  EXPECT_EQ(harness_->jobs->Cancel(job, "id")->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(harness_->jobs->Cancel(other, "id").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Submit(SmallSpec(), "id").code(), absl::StatusCode::kAlreadyExists);
}

// Writes, and does not say so while `silent`.
class SilentStore : public RecordingStore {
 public:
  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    RETURN_IF_ERROR(RecordingStore::WriteIf(conditions, batch));
    return silent ? absl::DeadlineExceededError("no answer") : absl::OkStatus();
  }
  bool silent = false;
};

TEST(JobLifeDoubtTest, ASubmitThatMayHaveBeenWrittenIsNoOtherOnesJob) {
  SilentStore store;
  auto harness = std::make_unique<JobHarness>(&store);
  v1::JobSpec first = SpecAt("/data/first"), second = SpecAt("/data/second");
  store.silent = true;
  EXPECT_EQ(harness->jobs->Submit(first, "first").status().code(),
            absl::StatusCode::kDeadlineExceeded);
  store.silent = false;
  const std::string name = harness->jobs->Submit(second, "second")->name();
  harness->jobs->Suspend();
  harness = std::make_unique<JobHarness>(&store);
  EXPECT_EQ(harness->jobs->Submit(second, "second")->name(), name);
  EXPECT_EQ(harness->jobs->Submit(first, "first")->spec().output_path(), "/data/first");
  EXPECT_EQ(harness->List().size(), 2u);
}

TEST(JobLifeDoubtTest, ASubmitThatMayHaveBeenWrittenIsFoundByTheNextPlanner) {
  SilentStore store;
  auto harness = std::make_unique<JobHarness>(&store);
  store.silent = true;
  EXPECT_FALSE(harness->jobs->Submit(SpecAt("/data/first"), "first").ok());
  store.silent = false;
  harness->jobs->Suspend();
  harness = std::make_unique<JobHarness>(&store);
  EXPECT_EQ(harness->jobs->Submit(SpecAt("/data/first"), "first")->name(), "jobs/1");
  EXPECT_EQ(harness->List().size(), 1u);
}

TEST_F(JobLifeRequestsTest, AStoreThatIsAnotherPlannersIsNoFaultOfTheRequest) {
  const std::string job = harness_->Submit(SmallSpec());
  store_.FailWhen([](const v1::Job&) { return true; }, absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Submit(SpecAt("/data/other")).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(harness_->jobs->Cancel(job, "").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(harness_->jobs->Delete(job).code(), absl::StatusCode::kUnavailable);
}

TEST_F(JobLifeRequestsTest, TwoUnfinishedJobsMayNotShareAnOutputPath) {
  ASSERT_TRUE(Submit(SpecAt("/data/run")).ok());
  for (const char* same : {"/data/run", "/data/run/", "/data/./run", "/data/x/../run//"}) {
    const absl::Status refused = Submit(SpecAt(same));
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << same;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("jobs/1"));
    EXPECT_EQ(DetailsOf(refused).reason, "OUTPUT_IN_USE");
    EXPECT_EQ(DetailsOf(refused).field, "spec.output_path");
  }
  EXPECT_TRUE(Submit(SpecAt("/data/run2")).ok());
  ASSERT_TRUE(harness_->jobs->Cancel("jobs/1").ok());
  EXPECT_TRUE(Submit(SpecAt("/data/run")).ok());
}

// Links give a directory a second name, which only workers see.
TEST_F(JobLifeRequestsTest, WorkersHearWhichOtherJobsHaveNotEnded) {
  const auto last = [&](const std::string& worker, v1::ConnectResponse::MessageCase kind) {
    v1::ConnectResponse found;
    for (const v1::ConnectResponse& message : harness_->Worker(worker).heard)
      if (message.message_case() == kind) found = message;
    return found;
  };
  for (const char* worker : {"a", "b"}) {
    harness_->Connect(worker);
    harness_->Worker(worker).silent_on = {v1::ConnectResponse::kStart};
  }
  harness_->Await(harness_->Submit(SmallSpec()), v1::JOB_STATE_RUNNING);
  const v1::Prepare first = last("a", v1::ConnectResponse::kPrepare).prepare();
  EXPECT_THAT(first.unfinished_runs(), IsEmpty());
  for (const char* worker : {"c", "d"}) harness_->Connect(worker);
  harness_->Submit(SmallSpec());
  harness_->Await("jobs/2", v1::JOB_STATE_SUCCEEDED);
  for (const char* worker : {"c", "d"}) {
    EXPECT_THAT(last(worker, v1::ConnectResponse::kCheckPaths).check_paths().unfinished_runs(),
                ElementsAre(first.run()));
    EXPECT_THAT(last(worker, v1::ConnectResponse::kPrepare).prepare().unfinished_runs(),
                ElementsAre(first.run()));
  }
  ASSERT_TRUE(harness_->jobs->Cancel("jobs/1").ok());
  harness_->Submit(SmallSpec());
  harness_->Await("jobs/3", v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(last("c", v1::ConnectResponse::kPrepare).prepare().unfinished_runs(), IsEmpty());
}

TEST_F(JobLifeRequestsTest, WhatIsOnlyValidatedIsNotRecorded) {
  EXPECT_TRUE(harness_->jobs->Validate(SpecAt("/a"), "id").ok());
  v1::JobSpec wrong = SpecAt("/a");
  wrong.set_mini_batch(0);
  EXPECT_EQ(DetailsOf(harness_->jobs->Validate(wrong, "")).field, "spec.mini_batch");
  EXPECT_TRUE(harness_->List().empty());
  ASSERT_TRUE(Submit(SpecAt("/a"), "id").ok());
  EXPECT_TRUE(harness_->jobs->Validate(SpecAt("/a"), "id").ok());
  EXPECT_EQ(harness_->jobs->Validate(SpecAt("/a"), "").code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(harness_->jobs->Validate(SpecAt("/b"), "id").code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(JobLifeRequestsTest, ListsByStateAndName) {
  Ended(2);
  v1::JobSpec named = SmallSpec();
  named.set_display_name("nightly run");
  harness_->Submit(named);
  harness_->Submit(SmallSpec());
  const auto names = [&](const v1::ListJobsRequest& request) {
    const auto listed = harness_->jobs->List(request);
    return Names({listed->jobs().begin(), listed->jobs().end()});
  };
  v1::ListJobsRequest ended, pending, nightly;
  ended.add_states(v1::JOB_STATE_CANCELLED);
  ended.add_states(v1::JOB_STATE_FAILED);
  EXPECT_THAT(names(ended), ElementsAre("jobs/2", "jobs/1"));
  pending.add_states(v1::JOB_STATE_PENDING);
  EXPECT_THAT(names(pending), ElementsAre("jobs/4", "jobs/3"));
  nightly.set_display_name_contains("night");
  EXPECT_THAT(names(nightly), ElementsAre("jobs/3"));
}

TEST_F(JobLifeRequestsTest, ListsByOwnerAndTenant) {
  for (const auto& [owner, tenant] :
       {std::pair("alice", ""), std::pair("alice", "vision"), std::pair("bob", "vision")}) {
    v1::JobSpec spec = SmallSpec();
    spec.set_owner(owner);
    spec.set_tenant(tenant);
    harness_->Submit(spec);
  }
  const auto names = [&](const char* owner, const char* tenant) {
    v1::ListJobsRequest request;
    request.set_owner(owner);
    request.set_tenant(tenant);
    const auto listed = harness_->jobs->List(request);
    return Names({listed->jobs().begin(), listed->jobs().end()});
  };
  EXPECT_THAT(names("alice", ""), ElementsAre("jobs/2", "jobs/1"));
  EXPECT_THAT(names("", "vision"), ElementsAre("jobs/3", "jobs/2"));
  EXPECT_THAT(names("alice", "vision"), ElementsAre("jobs/2"));
  EXPECT_THAT(names("eve", ""), ElementsAre());
  EXPECT_THAT(names("", ""), ElementsAre("jobs/3", "jobs/2", "jobs/1"));
}

TEST_F(JobLifeRequestsTest, PagesDoNotShiftWhenJobsComeAndGo) {
  const std::vector<std::string> jobs = Ended(6);
  std::string token;
  EXPECT_THAT(Names(harness_->List(2, &token)), ElementsAre("jobs/6", "jobs/5"));
  harness_->Submit(SmallSpec());
  ASSERT_TRUE(harness_->jobs->Delete("jobs/5").ok());
  ASSERT_TRUE(harness_->jobs->Delete("jobs/4").ok());
  EXPECT_THAT(Names(harness_->List(2, &token)), ElementsAre("jobs/3", "jobs/2"));
  EXPECT_THAT(Names(harness_->List(2, &token)), ElementsAre("jobs/1"));
  EXPECT_EQ(token, "");
}

TEST_F(JobLifeRequestsTest, JobsThatEndedAreWhatTheyWereAlsoAtRestAndAfterARestart) {
  v1::JobSpec nightly = SpecAt("/a");
  nightly.set_display_name("nightly");
  ASSERT_TRUE(Submit(nightly, "once").ok());
  ASSERT_TRUE(harness_->jobs->Cancel("jobs/1", "cancel").ok());
  Ended(2);
  harness_->Submit(SpecAt("/b"));
  const auto list = [&](auto&& filter) {
    v1::ListJobsRequest request;
    filter(request);
    return harness_->jobs->List(request).value();
  };
  const std::string shown = harness_->Get("jobs/1").SerializeAsString();
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    if (round == 1) harness_->jobs->Tick(absl::Now());
    if (round == 2) Restart();
    EXPECT_EQ(harness_->Get("jobs/1").SerializeAsString(), shown);
    const v1::ListJobsResponse all = list([](v1::ListJobsRequest&) {});
    ASSERT_EQ(all.jobs_size(), 4);
    EXPECT_EQ(all.jobs(3).spec().output_path(), "/a");
    const v1::ListJobsResponse page = list([](v1::ListJobsRequest& request) {
      request.set_page_size(1);
      request.add_states(v1::JOB_STATE_CANCELLED);
      request.set_display_name_contains("night");
    });
    ASSERT_EQ(page.jobs_size(), 1);
    EXPECT_EQ(page.jobs(0).name(), "jobs/1");
    EXPECT_EQ(page.next_page_token(), "");
    EXPECT_EQ(harness_->jobs->Submit(nightly, "once")->state(), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(harness_->jobs->Cancel("jobs/1", "cancel")->name(), "jobs/1");
    EXPECT_EQ(harness_->jobs->Cancel("jobs/1")->state(), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(harness_->jobs
                  ->Watch(
                      "jobs/1", [](const auto&) {}, /*after_version=*/1000)
                  .status()
                  .code(),
              absl::StatusCode::kOutOfRange);
    EXPECT_TRUE(harness_->jobs->Steps("jobs/1", 0).ok());
    v1::ReplanJobRequest replan;
    replan.set_name("jobs/1");
    harness_->jobs->Replan(replan, [](const auto& result) {
      EXPECT_THAT(std::string(result.status().message()),
                  HasSubstr("jobs/1 is not running: it is cancelled"));
    });
  }
  std::map<std::string, std::string> entries = store_.Entries();
  entries["jobs/000000000001"] = "\x0f";
  store_.Replace(entries);
  const v1::ListJobsResponse all = list([](v1::ListJobsRequest&) {});
  ASSERT_EQ(all.jobs_size(), 4) << "one that cannot be read hides no others";
  EXPECT_EQ(all.jobs(3).spec().display_name(), "nightly");
  EXPECT_THAT(all.jobs(3).message(), HasSubstr("entry jobs/000000000001 is damaged"));
}

TEST_F(JobLifeRequestsTest, AForgottenJobLeavesNothingBehind) {
  ASSERT_TRUE(Submit(SpecAt("/a"), "submit").ok());
  const absl::Status early = harness_->jobs->Delete("jobs/1");
  EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(early.message()), HasSubstr("jobs/1 is pending"));
  ASSERT_TRUE(harness_->jobs->Cancel("jobs/1", "cancel").ok());
  ASSERT_TRUE(harness_->jobs->Delete("jobs/1").ok());
  EXPECT_THAT(store_.Entries(), ElementsAre(Pair("life", "1"), Pair("next_job", "2")));
  EXPECT_EQ(harness_->jobs->Get("jobs/1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(harness_->jobs->Delete("jobs/1").code(), absl::StatusCode::kNotFound);
  // Its request ids may be used again, its number not.
  Restart();
  EXPECT_EQ(harness_->jobs->Submit(SpecAt("/a"), "submit")->name(), "jobs/2");
}

TEST_F(JobLifeRequestsTest, KeepsTheNewestEndedJobs) {
  JobManagerOptions options;
  options.keep.count = 2;
  std::vector<int64_t> forgotten;
  options.on_forgotten = [&](int64_t job, JobState) { forgotten.push_back(job); };
  Restart(options);
  Ended(4);
  harness_->Submit(SmallSpec());
  harness_->jobs->Tick(absl::Now());
  EXPECT_THAT(Names(harness_->List()), ElementsAre("jobs/5", "jobs/4", "jobs/3"));
  EXPECT_THAT(forgotten, ElementsAre(1, 2));
}

TEST_F(JobLifeRequestsTest, KeepsNoMoreEndedJobsOnceAnotherHasEnded) {
  JobManagerOptions options;
  options.keep.count = 2;
  Restart(options);
  Ended(2);
  const absl::Time now = absl::Now();
  harness_->jobs->Tick(now);
  const std::string job = harness_->Submit(SmallSpec());
  ASSERT_TRUE(harness_->jobs->Cancel(job, "cancel").ok());
  harness_->jobs->Tick(now + absl::Milliseconds(500));
  EXPECT_THAT(Names(harness_->List()), ElementsAre("jobs/3", "jobs/2"));
}

TEST_F(JobLifeRequestsTest, KeepsEndedJobsForAWhile) {
  JobManagerOptions options;
  options.keep.age = absl::Hours(24);
  Restart(options);
  Ended(2);
  harness_->Submit(SmallSpec());
  harness_->jobs->Tick(absl::Now() + absl::Hours(23));
  EXPECT_EQ(harness_->List().size(), 3u);
  harness_->jobs->Tick(absl::Now() + absl::Hours(25));
  EXPECT_THAT(Names(harness_->List()), ElementsAre("jobs/3"));
}

// Each write takes a while, as on a disk.
class SlowStore : public RecordingStore {
 public:
  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    absl::SleepFor(pause);
    return RecordingStore::WriteIf(conditions, batch);
  }
  absl::Duration pause;
};

TEST_F(JobLifeRequestsTest, ManyJobsAreForgottenOverSeveralTicksTheOldestFirst) {
  constexpr int kJobs = 40, kMostInATick = 7;  // 50 ms of them, and one more.
  SlowStore store;
  JobManagerOptions options;
  options.keep.age = absl::Hours(24);
  harness_ = std::make_unique<JobHarness>(&store, options);
  for (int i = 1; i <= kJobs; ++i) {
    const std::string job = harness_->Submit(SmallSpec(), absl::StrCat("submit", i));
    ASSERT_TRUE(harness_->jobs->Cancel(job, absl::StrCat("cancel", i)).ok());
  }
  store.pause = absl::Milliseconds(10);
  absl::Time now = absl::Now() + absl::Hours(25);
  size_t left = kJobs;
  while (left > 0) {
    harness_->jobs->Tick(now);
    now += absl::Milliseconds(500);
    const std::vector<v1::Job> jobs = harness_->List(kJobs);
    ASSERT_LT(jobs.size(), left);
    EXPECT_LE(left - jobs.size(), kMostInATick);
    left = jobs.size();
    // The newest, and all that there is of them.
    for (size_t i = 0; i < left; ++i) {
      EXPECT_EQ(jobs[i].name(), absl::StrCat("jobs/", kJobs - i));
      EXPECT_TRUE(harness_->jobs->Get(jobs[i].name()).ok());
    }
    size_t requests = 0;
    for (const auto& [key, value] : store.Entries()) requests += key.starts_with("requests/");
    EXPECT_EQ(requests, 2 * left);
  }
  EXPECT_THAT(store.Entries(),
              ElementsAre(Pair("life", _), Pair("next_job", absl::StrCat(kJobs + 1))));
  harness_.reset();
}

TEST_F(JobLifeRequestsTest, OfMoreDevicesThanAPlanMayHaveSomeAreTaken) {
  v1::Register message;
  message.set_host_address("127.0.0.1");
  v1::DeviceKind* kind = message.add_kinds();
  kind->set_name("cpu");
  kind->set_flops_per_second(1e9);
  kind->set_memory_bytes_per_second(1e10);
  for (int i = 0; i < 100; ++i) {
    v1::Device* device = message.add_devices();
    device->set_name(absl::StrCat("cpu", i));
    device->set_memory_bytes(int64_t{1} << 30);
  }
  for (int worker = 0; worker < 12; ++worker) {
    message.set_worker(absl::StrCat("w", worker));
    ASSERT_TRUE(harness_->jobs->Register(message, [](const auto&) { return true; }).ok());
  }
  v1::JobSpec spec = SmallSpec();
  spec.set_num_devices(0);
  const std::string job = harness_->Submit(spec);
  const v1::Job planning = harness_->Get(job);
  EXPECT_EQ(planning.devices_size(), 1024) << planning.message();
  EXPECT_NE(planning.state(), v1::JOB_STATE_FAILED) << planning.message();
  EXPECT_TRUE(harness_->jobs->Cancel(job).ok());
}

}  // namespace
}  // namespace stagewright
