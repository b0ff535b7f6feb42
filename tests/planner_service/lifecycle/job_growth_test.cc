// Jobs that run on fewer devices than they had get more when some become free, if it pays and
// nobody else wants them.
#include "planner_service/lifecycle/job_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/wire/graph_proto.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/registry/quarantine.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/measured_job.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using testing::JobHarness;
using testing::SmallSpec;

constexpr int64_t kStep = 400'000'000;
constexpr absl::Duration kPause = absl::Seconds(10);

class JobGrowthTest : public testing::MeasuredJobTest {
 protected:
  JobGrowthTest() {
    options_.growth_pause = kPause;
    pass_ns_ = 10'000'000;
    transfer_ns_ = 1'000;
    // Far more compute than messages, so that more devices are faster.
    testing::GraphBuilder builder("wide");
    Argument x = builder.Feature("x", {64});
    for (int i = 0; i < 4; ++i) x = builder.Linear(x, 64, 64);
    builder.Loss(x, {64});
    spec_ = SmallSpec();
    *spec_.mutable_graph() = ToProto(builder.Build());
    spec_.set_mini_batch(64);
    spec_.set_steps(100'000);
    spec_.set_num_devices(4);
    spec_.set_max_restarts(9);
    spec_.mutable_checkpoints()->set_every_steps(1000);
    spec_.clear_plan_options();
    spec_.set_planner("graphpipe");
  }

  void Connect(const std::string& name,
               const std::vector<std::pair<std::string, int64_t>>& running = {}) {
    harness_->Connect(name, running);
    harness_->Worker(name).silent_on = {Message::kStart};
    harness_->Worker(name).total_steps = spec_.steps();
  }

  // Workers that are there before the job is looked at.
  void Join(const std::vector<std::string>& names) {
    for (const std::string& name : names) Connect(name);
    Pass(kPause);
  }

  // A job that was planned for a, b, c and d.
  void Begin() {
    harness_ = std::make_unique<JobHarness>(&store_, options_);
    for (const char* name : {"a", "b", "c", "d"}) Connect(name);
    job_ = harness_->Submit(spec_);
    ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING)
        << Job().message();
    harness_->Pump();
  }
  // A job on all of them.
  void Start() {
    Begin();
    ASSERT_EQ(Job().devices_size(), 4);
  }

  // The same, which lost c and d, so that it goes on with a and b, and is measured.
  void Shrink() {
    Start();
    Lose({"c", "d"});
    Steps(1, 10, kStep);
    ASSERT_TRUE(Job().has_measurement());
  }
  void Lose(const std::vector<std::string>& workers) {
    const size_t left = static_cast<size_t>(Job().devices_size()) - workers.size();
    for (const std::string& worker : workers) harness_->Disconnect(worker);
    harness_->Pump();
    Pass(absl::Seconds(11));
    ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING)
        << Job().message();
    harness_->Pump();
    ASSERT_EQ(Job().devices_size(), static_cast<int>(left)) << Job().message();
  }

  void Pass(absl::Duration time) {
    later_ += time;
    harness_->PassUntil(absl::Now() + later_);
  }

  // Until what is said of the job's growth has the text; what is said then.
  std::string AwaitGrowth(const std::string& text) {
    const absl::Time deadline = absl::Now() + testing::kPatience;
    while (!absl::StrContains(Job().growth(), text) && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(2));
      Pass(absl::ZeroDuration());
    }
    return Job().growth();
  }
  // All searches that were begun have ended, and none begins by itself.
  void AwaitSearches() {
    for (int i = 0; i < 3; ++i) {
      Pass(absl::ZeroDuration());
      absl::Notification ended;  // The pool's only thread comes to it after all before.
      while (!harness_->pool.Submit([&] { ended.Notify(); }).ok())
        absl::SleepFor(absl::Milliseconds(1));
      ended.WaitForNotification();
    }
  }
  int64_t HeldAfter() { return Newest("a", Message::kCheckpointAfter)->checkpoint_after().step(); }

  v1::Job Save() {
    const int64_t step = HeldAfter();
    WriteShares(step);
    WriteManifest(step);
    return harness_->Await(job_, v1::JOB_STATE_RUNNING);
  }
  std::vector<std::string> Events(v1::EventKind kind) {
    std::vector<std::string> texts;
    for (const v1::Event& event : harness_->Events(job_, kind)) texts.push_back(event.message());
    return texts;
  }

  JobManagerOptions options_;
  v1::JobSpec spec_;
  absl::Duration later_;
};

TEST_F(JobGrowthTest, GrowsBackWhenItsWorkersComeBack) {
  Shrink();
  EXPECT_EQ(AwaitGrowth("runs on"), "runs on 2 of 4 devices: no other is free");
  Join({"c", "d"});
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 4 devices instead of 2 after step "));
  const int64_t step = HeldAfter();
  EXPECT_TRUE(Newest("b", Message::kCheckpointAfter)->checkpoint_after().hold());
  const v1::Job grown = Save();
  ASSERT_EQ(grown.state(), v1::JOB_STATE_RUNNING) << grown.message();
  EXPECT_EQ(grown.devices_size(), 4);
  EXPECT_EQ(grown.most_devices(), 4);
  EXPECT_EQ(grown.restarts(), 1);
  EXPECT_EQ(grown.replans(), 1);
  EXPECT_EQ(grown.growth(), "");
  EXPECT_EQ(grown.resume_from(), absl::StrCat("out/checkpoints/step-", step));
  ASSERT_EQ(Events(v1::EVENT_KIND_GROWTH).size(), 1u);
  EXPECT_THAT(Events(v1::EVENT_KIND_GROWTH)[0],
              HasSubstr(absl::StrCat("has 4 devices instead of 2 after step ", step, ": ")));
}

TEST_F(JobGrowthTest, AlsoOnWorkersThatItNeverHad) {
  Shrink();
  Join({"e"});
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 3 devices instead of 2"));
  EXPECT_THAT(Save().devices(), ::testing::Contains("e/cpu0"));
}

TEST_F(JobGrowthTest, APlannerThatComesLaterKnowsHowManyItHad) {
  Shrink();
  const int64_t generation = Job().generation();
  harness_->jobs->Suspend();
  harness_ = std::make_unique<JobHarness>(&store_, options_);
  for (const char* name : {"a", "b"}) Connect(name, {{job_, generation}});
  ASSERT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job().most_devices(), 4);
  for (const char* name : {"c", "d"}) Connect(name);
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 0);
  // It is measured when its workers are asked to.
  Steps(11, 20, kStep);
  const auto asked = Newest("a", Message::kTraceSteps);
  ASSERT_TRUE(asked.has_value());
  const int64_t first = asked->trace_steps().first_step();
  Steps(21, first + asked->trace_steps().steps(), kStep);
  Pass(kPause);
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 4 devices instead of 2"));
  EXPECT_EQ(Save().devices_size(), 4);
}

TEST_F(JobGrowthTest, JobsThatWaitComeFirst) {
  Shrink();
  v1::JobSpec other = SmallSpec();
  other.set_num_devices(3);
  const std::string waits = harness_->Submit(other);
  Join({"c", "d"});
  EXPECT_EQ(AwaitGrowth("2 are free"),
            "runs on 2 of 4 devices: 2 are free, but 1 job waits for devices and comes first");
  AwaitSearches();
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 0);
  ASSERT_TRUE(harness_->jobs->Cancel(waits).ok());
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 4 devices"));
}

TEST_F(JobGrowthTest, AJobThatWaitsForMoreThanThereIsKeepsNobodyFromGrowing) {
  Shrink();
  v1::JobSpec other = SmallSpec();
  other.set_num_devices(5);
  const std::string waits = harness_->Submit(other);
  Join({"c", "d"});
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 4 devices"));
  EXPECT_EQ(harness_->Get(waits).state(), v1::JOB_STATE_PENDING);
}

TEST_F(JobGrowthTest, AJobThatWaitsForItsQuotaKeepsNoOtherAccountFromGrowing) {
  options_.quotas.quotas[Account::Of("bob", "")] = 1;
  Shrink();
  v1::JobSpec other = SmallSpec();
  other.set_owner("bob");
  other.set_num_devices(1);
  other.mutable_plan_options()->set_num_stages(1);
  Connect("c");
  const std::string runs = harness_->Submit(other);
  ASSERT_EQ(harness_->Await(runs, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  const std::string waits = harness_->Submit(other);
  Join({"d"});
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 3 devices"));
  EXPECT_EQ(harness_->Get(waits).message(),
            "quota of owner bob: 1 device, 1 in use, the job needs 1");
  EXPECT_EQ(Save().devices_size(), 3);
}

TEST_F(JobGrowthTest, GoesOnAsItIsIfSomebodyTakesTheDevicesMeanwhile) {
  Shrink();
  Join({"c", "d"});
  AwaitGrowth("gets");
  v1::JobSpec other = SmallSpec();
  other.set_num_devices(2);
  const std::string faster = harness_->Submit(other);
  ASSERT_NE(harness_->Await(faster, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_PENDING);
  const int64_t step = HeldAfter();
  WriteShares(step);
  WriteManifest(step);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job().devices_size(), 2);
  EXPECT_EQ(Job().replans(), 0);
  EXPECT_EQ(harness_->Heard("a", Message::kGoOn), 1);
  EXPECT_TRUE(Job().warnings().empty());
  ASSERT_EQ(Events(v1::EVENT_KIND_GROWTH).size(), 1u);
  EXPECT_THAT(Events(v1::EVENT_KIND_GROWTH)[0], HasSubstr("runs on 2 of 4 devices: "));
}

TEST_F(JobGrowthTest, LeavesOutWorkersThatAreClosedToJobs) {
  Shrink();
  Connect("c");
  ASSERT_TRUE(harness_->registry.SetAvailability("c", v1::WORKER_AVAILABILITY_CORDONED).ok());
  Connect("d");
  const absl::Time now = absl::Now() + later_;
  for (int i = 0; i < kFailuresToQuarantine; ++i)
    harness_->registry.NoteFailure("d/cpu0", "it fails", now);
  Pass(kPause);
  AwaitSearches();
  EXPECT_EQ(AwaitGrowth("no other"), "runs on 2 of 4 devices: no other is free");
  v1::SetWorkerAvailabilityRequest open;
  open.set_name("c");
  open.set_availability(v1::WORKER_AVAILABILITY_OPEN);
  ASSERT_TRUE(harness_->jobs->SetAvailability(open).ok());
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 3 devices"));
  EXPECT_EQ(Save().devices_size(), 3);
  // The quarantine ends.
  Steps(1, 10, kStep);
  Pass(kQuarantineLasts + absl::Seconds(1));
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 4 devices"));
}

TEST_F(JobGrowthTest, StaysWithinItsOwnersQuota) {
  spec_.set_num_devices(0);
  options_.quotas.other_owners = 4;
  Start();
  Lose({"c", "d"});
  Steps(1, 10, kStep);
  // The quota's other two are another job's.
  v1::JobSpec other = SmallSpec();
  other.set_num_devices(2);
  for (const char* name : {"c", "d"}) Connect(name);
  const std::string second = harness_->Submit(other);
  ASSERT_EQ(harness_->Await(second, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  Join({"e"});
  EXPECT_EQ(AwaitGrowth("quota"), "runs on 2 of 4 devices: its quota is used up");
}

TEST_F(JobGrowthTest, ADifferenceThatDoesNotPayChangesNothing) {
  spec_.set_steps(14);
  Shrink();
  Join({"c", "d"});
  EXPECT_THAT(AwaitGrowth("not more than twice"), HasSubstr("runs on 2 of 4 devices: "));
  EXPECT_EQ(Events(v1::EVENT_KIND_GROWTH).size(), 1u);
  for (int i = 0; i < 5; ++i) {
    Pass(absl::Minutes(1));
    AwaitSearches();
  }
  const v1::Job job = Job();
  EXPECT_EQ(job.events().rbegin()->count(), 1);  // It was not looked for again.
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 0);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
}

TEST_F(JobGrowthTest, SlowerPlansForMoreDevicesAreNotTaken) {
  spec_.mutable_plan_options()->set_max_stages(2);
  spec_.mutable_plan_options()->set_forbid_replicas(true);
  Begin();
  ASSERT_EQ(Job().devices_size(), 2);  // The others are free.
  Steps(1, 10, kStep);
  Pass(kPause);
  EXPECT_THAT(AwaitGrowth("no better plan"), HasSubstr("there is no better plan: "));
  EXPECT_EQ(Job().replans(), 0);
}

TEST_F(JobGrowthTest, NobodySearchesAgainForWhatIsAsItWas) {
  spec_.mutable_plan_options()->set_max_stages(2);
  spec_.mutable_plan_options()->set_forbid_replicas(true);
  Begin();
  Steps(1, 10, kStep);
  Pass(kPause);
  AwaitGrowth("no better plan");
  const auto searches = [&] {
    int64_t count = 0;
    for (const v1::Event& event : harness_->Events(job_, v1::EVENT_KIND_GROWTH))
      count += std::max<int64_t>(event.count(), 1);
    return count;
  };
  ASSERT_EQ(searches(), 1);
  const auto look_again = [&] {
    Pass(kSameDevicesAgain + absl::Seconds(1));
    AwaitSearches();
  };
  for (int i = 0; i < 2; ++i) look_again();
  EXPECT_EQ(searches(), 1);
  // Its steps take longer than they did.
  Steps(11, 60, 2 * kStep);
  look_again();
  const absl::Time deadline = absl::Now() + testing::kPatience;
  while (searches() < 2 && absl::Now() < deadline) AwaitSearches();
  EXPECT_EQ(searches(), 2);
}

TEST_F(JobGrowthTest, ARunIsLeftAloneForAWhile) {
  options_.growth_pause = absl::Seconds(30);
  Shrink();
  for (const char* name : {"c", "d"}) Connect(name);
  AwaitSearches();
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 0);
  Pass(absl::Seconds(30));
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 4 devices"));
  Save();
  // Twice as long after that.
  Steps(1, 40, kStep);
  Lose({"c", "d"});
  Steps(1, 10, kStep);
  for (const char* name : {"c", "d"}) Connect(name);
  Pass(absl::Seconds(45));
  AwaitSearches();
  EXPECT_THAT(Job().growth(), ::testing::Not(HasSubstr("gets")));
  Pass(absl::Seconds(16));
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 4 devices"));
}

TEST_F(JobGrowthTest, NoPlanWaitsUntilTheStoreHasReadItsProfiles) {
  Begin();
  const int before = store_.scans();  // A planner that starts reads them once.
  Lose({"c", "d"});                   // It is planned anew, and ahead of further losses.
  Steps(1, 10, kStep);
  Join({"c", "d"});
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr("gets 4 devices"));
  EXPECT_EQ(store_.scans(), before);
}

TEST_F(JobGrowthTest, GrowsByItsPolicyOnly) {
  struct Case {
    v1::GrowthPolicy policy;
    int32_t asked, most, free, grows_to;
  };
  for (const Case& c : std::vector<Case>{{v1::GROWTH_POLICY_UNSPECIFIED, 0, 4, 9, 4},
                                         {v1::GROWTH_POLICY_BACK, 6, 4, 9, 6},
                                         {v1::GROWTH_POLICY_BACK, 2, 2, 9, 2},
                                         {v1::GROWTH_POLICY_FREE, 0, 4, 9, 11},
                                         {v1::GROWTH_POLICY_FREE, 6, 2, 9, 6},
                                         {v1::GROWTH_POLICY_NONE, 6, 4, 9, 0}}) {
    spec_.set_grow(c.policy);
    spec_.set_num_devices(c.asked);
    class Job job;
    job.request = std::make_shared<const JobRequest>(*FromProto(spec_));
    job.devices = {"a/cpu0", "b/cpu0"};
    job.most_devices = c.most;
    EXPECT_EQ(GrowsTo(job, c.free), c.grows_to) << c.policy << " " << c.asked;
  }
}

TEST_F(JobGrowthTest, PlansByHandStayAsTheyAre) {
  class Job job;
  job.most_devices = 4;
  job.devices = {"a/cpu0"};
  JobRequest request = *FromProto(spec_);
  request.planner = "manual";
  job.request = std::make_shared<const JobRequest>(request);
  EXPECT_EQ(GrowsTo(job, 9), 0);
  request.planner.clear();
  request.strategy.emplace();
  job.request = std::make_shared<const JobRequest>(request);
  EXPECT_EQ(GrowsTo(job, 9), 0);
}

TEST_F(JobGrowthTest, AJobThatIsToGrowOnAnyDevicesTakesWhatConnects) {
  spec_.set_num_devices(0);
  spec_.set_grow(v1::GROWTH_POLICY_FREE);
  Start();
  Steps(1, 10, kStep);
  EXPECT_EQ(Job().growth(), "");
  Join({"e", "f", "g", "h"});
  EXPECT_THAT(AwaitGrowth("gets"), HasSubstr(" devices instead of 4 after step "));
}

TEST_F(JobGrowthTest, LeavesAWorkerThatDrainsInsteadOfGrowing) {
  Shrink();
  Join({"c"});
  AwaitGrowth("gets");
  v1::SetWorkerAvailabilityRequest drain;
  drain.set_name("b");
  drain.set_availability(v1::WORKER_AVAILABILITY_DRAINING);
  ASSERT_TRUE(harness_->jobs->SetAvailability(drain).ok());
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 1);
  const v1::Job left = Save();
  ASSERT_EQ(left.state(), v1::JOB_STATE_RUNNING) << left.message();
  EXPECT_THAT(left.devices(), ::testing::UnorderedElementsAre("a/cpu0", "c/cpu0"));
  EXPECT_EQ(left.replans(), 0);
  EXPECT_EQ(left.restarts(), 1);
}

TEST_F(JobGrowthTest, WhoAsksForAPlanComesFirst) {
  Shrink();
  Join({"c", "d"});
  const auto asked = Replan(false);  // Whether or not the service looks for one just now.
  EXPECT_TRUE(asked.ok() || absl::StrContains(asked.status().message(), "about to change"))
      << asked.status();
}

}  // namespace
}  // namespace stagewright
