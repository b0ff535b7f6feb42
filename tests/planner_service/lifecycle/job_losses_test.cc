// Workers that are lost, come back, hang or say late what is over, in every order: a job that has
// restarts left goes on.
#include "planner_service/lifecycle/job_losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/log/log.h"
#include "planner_service/registry/quarantine.h"
#include "planner_service/runs/setbacks.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Message = v1::ConnectResponse;

constexpr int kUnavailable = static_cast<int>(absl::StatusCode::kUnavailable);

v1::ConnectRequest Failed(const std::string& job, int64_t generation, int code,
                          const std::string& text = "device 1 has gone") {
  v1::ConnectRequest message;
  message.mutable_failed()->set_job(job);
  message.mutable_failed()->set_generation(generation);
  message.mutable_failed()->set_code(code);
  message.mutable_failed()->set_message(text);
  return message;
}

v1::ConnectRequest Finished(const std::string& job, int64_t generation) {
  v1::ConnectRequest message;
  message.mutable_finished()->set_job(job);
  message.mutable_finished()->set_generation(generation);
  return message;
}

class JobLossesTest : public ::testing::Test {
 protected:
  JobLossesTest() {
    spec_.set_max_restarts(5);
    spec_.mutable_checkpoints()->set_every_steps(10);
    spec_.mutable_plan_options()->clear_num_stages();
    spec_.set_steps(1000);
    spec_.set_planner("graphpipe");
  }

  // A job on so many workers a, b, c, ... that goes on until it is ended.
  void Run(int workers) {
    spec_.set_num_devices(workers);
    for (int i = 0; i < workers; ++i) Connect(std::string(1, static_cast<char>('a' + i)));
    job_ = harness_->Submit(spec_);
    ASSERT_EQ(Await(v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING) << Job().message();
    harness_->Pump();
  }
  void Connect(const std::string& worker,
               const std::vector<std::pair<std::string, int64_t>>& running = {}) {
    harness_->Connect(worker, running);
    FakeWorker& fake = harness_->Worker(worker);
    fake.silent_on = {Message::kStart};
    fake.total_steps = 1000;
  }
  v1::Job Job() const { return harness_->Get(job_); }
  v1::Job Await(v1::JobState state) { return harness_->Await(job_, state); }
  // So much later, when those that are connected have sent heartbeats.
  void Pass(absl::Duration time) {
    later_ += time;
    harness_->PassUntil(absl::Now() + later_);
  }
  void Step(int64_t step) { harness_->Step(job_, step); }  // All devices do it.
  void ExpectRunsOn(const std::vector<std::string>& devices, int restarts) {
    const v1::Job job = Await(v1::JOB_STATE_RUNNING);
    EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING) << job.message();
    EXPECT_THAT(job.devices(), ::testing::ElementsAreArray(devices));
    EXPECT_EQ(job.restarts(), restarts);
  }
  std::string WorkerState(const std::string& name) const {
    const auto worker = harness_->registry.Get(name);
    return worker.ok() ? worker->devices(0).ending() : "gone";
  }

  RecordingStore store_;
  std::unique_ptr<JobHarness> harness_ = std::make_unique<JobHarness>(&store_);
  v1::JobSpec spec_ = SmallSpec();
  std::string job_;
  absl::Duration later_;
};

TEST_F(JobLossesTest, EachGenerationHasAKeyThatItsWorkersAloneAreTold) {
  const auto key = [this](const std::string& worker) {
    std::string last;
    for (const Message& message : harness_->Worker(worker).heard) {
      if (message.has_prepare()) last = message.prepare().transport_key();
    }
    return last;
  };
  Run(3);
  const std::string first = key("a");
  EXPECT_EQ(first.size(), 32);
  EXPECT_EQ(key("b"), first);
  EXPECT_EQ(key("c"), first);
  harness_->Disconnect("a");
  Pass(absl::Minutes(1));
  Await(v1::JOB_STATE_RUNNING);
  const std::string second = key("b");
  EXPECT_EQ(second.size(), 32);
  EXPECT_NE(second, first);
  for (const auto& [name, entry] : store_.Entries()) {
    for (const std::string& secret : {first, second})
      EXPECT_FALSE(absl::StrContains(entry, secret)) << name;
  }
  for (const std::string& secret : {first, second})
    EXPECT_FALSE(absl::StrContains(Job().SerializeAsString(), secret));
}

TEST_F(JobLossesTest, WhereAWorkerDoesNotKnowOfKeysThereIsNone) {
  harness_->without_keys = {"c"};
  Run(3);
  for (const char* worker : {"a", "b", "c"}) {
    for (const Message& message : harness_->Worker(worker).heard)
      EXPECT_EQ(message.prepare().transport_key(), "") << worker;
  }
}

// What survivors say of a loss, and of the run that is over, comes in any order, the loss itself
// among it.
TEST_F(JobLossesTest, LateReportsInEveryOrderEndNoJobThatMayRestart) {
  for (const int workers : {3, 4}) {
    std::vector<std::string> order = {"lost a"};
    for (int i = 1; i < workers; ++i)
      order.push_back(absl::StrCat("failed ", std::string(1, 'a' + i)));
    for (const char* late : {"progress b", "finished c"}) order.push_back(late);
    std::sort(order.begin(), order.end());
    int tried = 0;
    do {
      // All orders of three workers, some of four.
      if (workers == 4 && ++tried % 7 != 0) continue;
      SCOPED_TRACE(absl::StrJoin(order, ", "));
      harness_.reset();
      RecordingStore store;
      harness_ = std::make_unique<JobHarness>(&store);
      later_ = absl::ZeroDuration();
      Run(workers);
      Step(10);
      for (const std::string& event : order) {
        const std::string worker(1, event.back());
        if (event == "lost a") harness_->Disconnect("a");
        if (event.starts_with("failed"))
          harness_->jobs->OnMessage(worker, Failed(job_, 1, kUnavailable));
        if (event.starts_with("progress"))
          harness_->jobs->OnMessage(worker, Progress(job_, 1, 11, 1));
        if (event.starts_with("finished")) harness_->jobs->OnMessage(worker, Finished(job_, 1));
        if (tried % 2 == 1) harness_->Pump();  // The next run may have begun already.
      }
      const v1::Job job = Await(v1::JOB_STATE_RUNNING);
      ASSERT_EQ(job.state(), v1::JOB_STATE_RUNNING) << job.message();
      EXPECT_EQ(job.restarts(), 1);
      EXPECT_EQ(job.generation(), 2);
      EXPECT_EQ(job.devices_size(), workers - 1);
      harness_.reset();
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_F(JobLossesTest, AWorkerThatThePlanGivesNothingToDoIsNoPartOfTheJob) {
  spec_.set_planner("single");
  spec_.set_max_restarts(0);
  Run(2);
  ASSERT_EQ(Job().devices_size(), 1);
  const std::string idle = Job().devices(0) == "a/cpu0" ? "b" : "a";
  EXPECT_EQ(harness_->registry.Get(idle)->devices(0).job(), "");  // Free for others.
  EXPECT_EQ(harness_->Heard(idle, Message::kPrepare), 0);
  Step(10);
  harness_->Disconnect(idle);
  Pass(absl::Minutes(1));
  Step(11);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING) << Job().message();
  EXPECT_EQ(Job().generation(), 1);
  EXPECT_EQ(Job().metrics().step(), 11);
}

TEST_F(JobLossesTest, APlanByHandHoldsOnlyTheDevicesThatItNames) {
  spec_.set_planner("single");
  Run(3);
  v1::JobSpec by_hand = spec_;
  *by_hand.mutable_strategy() = Job().plan().strategy();
  by_hand.mutable_strategy()->mutable_stages(0)->set_devices(0, 1);
  const std::string first = job_;
  ASSERT_TRUE(harness_->jobs->Cancel(first).ok());
  harness_->Pump();
  job_ = harness_->Submit(by_hand);
  ExpectRunsOn({"b/cpu0"}, 0);
  harness_->Pump();
  Step(3);
  EXPECT_EQ(Job().metrics().step(), 3);
  EXPECT_EQ(Job().plan().program().devices(0).device(), 0);
  ASSERT_EQ(Job().plan().evaluation().devices_size(), 1);
  EXPECT_EQ(Job().plan().evaluation().devices(0).name(), "b/cpu0");
  // It is planned again for as many as it names, and for the one that it names of these.
  harness_->Disconnect("b");
  Connect("b");
  harness_->Pump();
  ExpectRunsOn({"b/cpu0"}, 1);
}

TEST_F(JobLossesTest, AWorkerThatReportsWhatCannotBeEndsItsJobOnly) {
  Run(2);
  v1::ConnectRequest message;
  message.mutable_shard_written()->set_job(job_);
  message.mutable_shard_written()->set_generation(1);
  message.mutable_shard_written()->set_step(10);
  message.mutable_shard_written()->set_device(77);
  harness_->jobs->OnMessage("a", message);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job().message(),
            "worker a reports what cannot be: shard_written.device: 77 is none of its devices");
}

TEST_F(JobLossesTest, WithoutRestartsTheFirstCauseIsTheJobs) {
  spec_.set_max_restarts(0);
  Run(3);
  harness_->Disconnect("b");
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  harness_->jobs->OnMessage("c", Failed(job_, 1, kUnavailable));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job().message(), HasSubstr("worker b was lost"));
  EXPECT_THAT(Job().message(), Not(HasSubstr("worker c")));
}

TEST_F(JobLossesTest, WithoutRestartsEachLossIsTold) {
  spec_.set_max_restarts(0);
  Run(3);
  harness_->Disconnect("b");
  harness_->Disconnect("c");
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job().message(), HasSubstr("worker b was lost after step 0: "));
  EXPECT_THAT(Job().message(), HasSubstr("; worker c was lost after step 0: "));
  EXPECT_THAT(Job().message(), HasSubstr("; worker a: device 1 has gone"));
}

TEST_F(JobLossesTest, WithoutRestartsALossIsTheCauseThoughAnotherTellsFirst) {
  spec_.set_max_restarts(0);
  Run(3);
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  harness_->Disconnect("b");
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job().failure_code(), 0) << "no worker failed it";
  EXPECT_THAT(Job().message(), HasSubstr("worker b was lost"));
}

TEST_F(JobLossesTest, WithoutRestartsWhatIsToldIsTheCauseIfNobodyIsLost) {
  spec_.set_max_restarts(0);
  Run(3);
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  Pass(absl::Minutes(1));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job().failure_code(), kUnavailable);
  EXPECT_THAT(Job().message(), HasSubstr("worker a: "));
}

TEST_F(JobLossesTest, AnOnlyWorkerIsWaitedForForAMomentSinceNobodyTellsThatItDied) {
  Run(1);
  Connect("b");
  Step(10);
  harness_->Disconnect("a");
  Pass(kConnectsAgainWithin - absl::Seconds(1));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RECOVERING);
  Pass(absl::Seconds(1.5));
  ExpectRunsOn({"b/cpu0"}, 1);
}

TEST_F(JobLossesTest, AnOnlyWorkerIsWaitedForLongerIfItsLossFailsTheJob) {
  spec_.set_max_restarts(0);
  Run(1);
  harness_->Disconnect("a");
  Pass(absl::Seconds(9));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RECOVERING);
  Connect("a", {{job_, 1}});
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
}

TEST_F(JobLossesTest, AStartThatIsNotAnsweredIsTriedWithoutWhoHangs) {
  Run(3);
  harness_->Disconnect("a");
  harness_->Worker("b").silent_on = {Message::kPrepare, Message::kAbort};
  harness_->jobs->OnMessage("b", Failed(job_, 1, kUnavailable));
  // It hangs while it ends the run, too: it is not waited for longer than that.
  harness_->Pump();
  EXPECT_EQ(WorkerState("b"), job_);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(Job().message(), HasSubstr("end on b"));
  Pass(absl::Seconds(11));
  ExpectRunsOn({"c/cpu0"}, 1);
}

TEST_F(JobLossesTest, AStartThatTakesTooLongIsTriedAgain) {
  spec_.set_on_loss(v1::LOSS_POLICY_SHRINK);
  spec_.set_num_devices(3);
  for (const char* worker : {"a", "b", "c"}) Connect(worker);
  harness_->Worker("b").silent_on = {Message::kPrepare, Message::kAbort};
  job_ = harness_->Submit(spec_);
  ASSERT_EQ(Await(v1::JOB_STATE_STARTING).state(), v1::JOB_STATE_STARTING);
  harness_->Pump();
  Pass(absl::Seconds(121));
  EXPECT_THAT(Job().message(), HasSubstr("no answer from b"));
  harness_->Pump();
  Pass(absl::Seconds(11));
  ExpectRunsOn({"a/cpu0", "c/cpu0"}, 1);
}

TEST_F(JobLossesTest, ADeviceThatGoesWhileTheJobStartsCostsARestart) {
  for (const char* worker : {"a", "b", "c"}) Connect(worker);
  harness_->Worker("b").silent_on = {Message::kConnectPeers};
  spec_.set_num_devices(3);
  job_ = harness_->Submit(spec_);
  ASSERT_EQ(Await(v1::JOB_STATE_STARTING).state(), v1::JOB_STATE_STARTING);
  harness_->Pump();
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_STARTING);
  harness_->Disconnect("b");
  ExpectRunsOn({"a/cpu0", "c/cpu0"}, 1);
}

TEST_F(JobLossesTest, AWorkerThatGivesUpThoughNoneIsLostCostsARestart) {
  Run(3);
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RECOVERING);
  Pass(absl::Seconds(3));
  ExpectRunsOn({"a/cpu0", "b/cpu0", "c/cpu0"}, 1);
}

TEST_F(JobLossesTest, AStepThatTakesTooLongIsTakenForALoss) {
  Run(2);
  harness_->jobs->OnMessage(
      "a", Failed(job_, 1, static_cast<int>(absl::StatusCode::kDeadlineExceeded), "step 3 hangs"));
  Pass(absl::Seconds(3));
  ExpectRunsOn({"a/cpu0", "b/cpu0"}, 1);
}

TEST_F(JobLossesTest, AWorkerThatComesBackWithoutTheJobCostsARestart) {
  Run(3);
  harness_->Disconnect("b");
  Connect("b");
  ExpectRunsOn({"a/cpu0", "b/cpu0", "c/cpu0"}, 1);
}

TEST_F(JobLossesTest, TheEndOfAnOlderStreamIsNoLoss) {
  Run(2);
  const int64_t older = harness_->Worker("a").session;
  EXPECT_TRUE(harness_->jobs->OnLost("a", older, "its connection ended"));
  EXPECT_FALSE(harness_->registry.Connected("a"));
  Connect("a", {{job_, 1}});
  ASSERT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_FALSE(harness_->jobs->OnLost("a", older, "its connection ended"));
  EXPECT_TRUE(harness_->registry.Connected("a"));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job().restarts(), 0);
}

TEST_F(JobLossesTest, PlannerAndWorkerMayGoTogether) {
  Run(3);
  Step(10);
  harness_->jobs->Suspend();
  harness_ = std::make_unique<JobHarness>(&store_);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RECOVERING);
  // The one that died is back first; the others are waited for and not left out.
  Connect("b");
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RECOVERING);
  Connect("a", {{job_, 1}});
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RECOVERING) << Job().message();
  Connect("c", {{job_, 1}});
  ExpectRunsOn({"a/cpu0", "b/cpu0", "c/cpu0"}, 1);
}

TEST_F(JobLossesTest, OneThatDiedWithThePlannerAndStaysAwayIsLeftOut) {
  Run(3);
  harness_->jobs->Suspend();
  harness_ = std::make_unique<JobHarness>(&store_);
  Connect("a", {{job_, 1}});
  Connect("c", {{job_, 1}});
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  Pass(absl::Seconds(31));
  ExpectRunsOn({"a/cpu0", "c/cpu0"}, 1);
}

TEST_F(JobLossesTest, AWorkerThatComesAndGoesDoesNotPutOffTheLossOfAnother) {
  Run(3);
  harness_->Disconnect("a");
  for (int i = 0; i < 3 && Job().state() == v1::JOB_STATE_RECOVERING; ++i) {
    Pass(absl::Seconds(3));
    harness_->Disconnect("b");
    Pass(absl::Seconds(1.5));
    Connect("b", {{job_, 1}});
  }
  EXPECT_EQ(Job().restarts(), 1);  // 10 s after the first loss.
  ExpectRunsOn({"b/cpu0", "c/cpu0"}, 1);
}

TEST_F(JobLossesTest, AWorkerThatComesAndGoesLeavesOthersTheirTimeToComeBack) {
  Run(3);
  harness_->jobs->Suspend();
  harness_ = std::make_unique<JobHarness>(&store_);
  Connect("a", {{job_, 1}});
  harness_->Disconnect("a");
  Pass(absl::Seconds(20));
  for (const char* worker : {"a", "b", "c"}) Connect(worker, {{job_, 1}});
  ExpectRunsOn({"a/cpu0", "b/cpu0", "c/cpu0"}, 0);
}

TEST_F(JobLossesTest, WaitPutsOffTheJobUntilAReplacementIsThere) {
  spec_.set_on_loss(v1::LOSS_POLICY_WAIT);
  Run(3);
  Step(10);
  harness_->Disconnect("b");
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  harness_->Pump();
  EXPECT_EQ(Job().state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(Job().message(), HasSubstr("worker b was lost"));
  EXPECT_THAT(Job().message(), HasSubstr("waits for 3 devices: 2 are connected"));
  Connect("d");
  ExpectRunsOn({"a/cpu0", "c/cpu0", "d/cpu0"}, 1);
}

TEST_F(JobLossesTest, WaitIsForAsManyAsItsPlanHadWorkFor) {
  spec_.set_on_loss(v1::LOSS_POLICY_WAIT);
  spec_.set_planner("single");
  spec_.set_num_devices(2);
  Run(2);
  ASSERT_EQ(Job().devices_size(), 1);
  const std::string used = Job().devices(0) == "a/cpu0" ? "a" : "b";
  Step(10);
  harness_->Disconnect(used);
  Pass(kConnectsAgainWithin + absl::Seconds(0.5));
  ExpectRunsOn({used == "a" ? "b/cpu0" : "a/cpu0"}, 1);
}

TEST_F(JobLossesTest, FailEndsTheJobThoughRestartsAreLeft) {
  spec_.set_on_loss(v1::LOSS_POLICY_FAIL);
  Run(3);
  harness_->Disconnect("b");
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
}

TEST_F(JobLossesTest, WhatIsLeftMayBeTooLittle) {
  spec_.mutable_plan_options()->set_num_stages(3);
  spec_.mutable_plan_options()->set_max_loops(1);
  Run(3);
  Step(10);
  harness_->Disconnect("b");
  harness_->jobs->OnMessage("a", Failed(job_, 1, kUnavailable));
  const auto waits = [&] {
    return absl::StrContains(Job().message(), "waits for 3 devices: 2 are");
  };
  const absl::Time deadline = absl::Now() + testing::kPatience;
  while (!waits() && absl::Now() < deadline) {
    harness_->Pump();
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_TRUE(waits()) << Job().message();
  EXPECT_THAT(Job().message(), HasSubstr("worker b was lost"));
  Connect("d");
  ExpectRunsOn({"a/cpu0", "c/cpu0", "d/cpu0"}, 1);
}

TEST_F(JobLossesTest, TheSameLossAgainAndAgainWithoutAStepEndsTheJob) {
  spec_.set_on_loss(v1::LOSS_POLICY_WAIT);
  spec_.set_max_restarts(100);
  Run(2);
  Step(10);
  for (int i = 1; i <= kMostAlike; ++i) {
    ASSERT_EQ(Job().state(), v1::JOB_STATE_RUNNING) << Job().message();
    harness_->Disconnect("b");
    harness_->jobs->OnMessage("a", Failed(job_, i, kUnavailable));
    if (i == kMostAlike) break;
    harness_->Pump();
    Connect("b");
    Pass(absl::Seconds(3));  // Longer and longer.
    Await(v1::JOB_STATE_RUNNING);
  }
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job().message(), HasSubstr("worker b was lost"));
  EXPECT_THAT(Job().message(), HasSubstr("loss of worker b 3 times in a row without a step"));
}

TEST_F(JobLossesTest, AWorkerThatFailsAgainAndAgainIsKeptFromJobsForAWhile) {
  spec_.set_max_restarts(100);
  Run(2);
  std::vector<std::string> told;  // What the log says of workers in quarantine.
  const LogTap tap([&](const LogLine& line) {
    if (line.message != EventKindName(EventKind::kQuarantined)) return;
    EXPECT_EQ(line.level, LogLevel::kWarning);
    for (const LogField& field : line.fields)
      if (field.key == "worker") told.push_back(field.value);
  });
  for (int i = 1; i <= kFailuresToQuarantine; ++i) {
    Step(10 * i);
    harness_->Disconnect("b");
    harness_->jobs->OnMessage("a", Failed(job_, i, kUnavailable));
    Connect("b");
    if (i == kFailuresToQuarantine) break;
    ExpectRunsOn({"a/cpu0", "b/cpu0"}, i);
  }
  ExpectRunsOn({"a/cpu0"}, kFailuresToQuarantine);
  const auto worker = harness_->registry.Get("b");
  ASSERT_TRUE(worker.ok());
  EXPECT_TRUE(worker->devices(0).has_quarantined_until());
  EXPECT_THAT(worker->devices(0).quarantine_reason(), HasSubstr("worker b was lost"));
  EXPECT_THAT(told, ElementsAre("b"));
  for (const std::vector<v1::Event>& events :
       {harness_->Events(job_, v1::EVENT_KIND_QUARANTINED),
        harness_->WorkerEvents(v1::EVENT_KIND_QUARANTINED)}) {
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].worker(), "b");
    EXPECT_THAT(events[0].message(), HasSubstr("in quarantine: b/cpu0 until 20"));
    EXPECT_THAT(events[0].message(), HasSubstr("worker b was lost"));
  }
  EXPECT_THAT(harness_->registry.Devices(/*free_only=*/true), IsEmpty());
  Pass(kQuarantineLasts + absl::Seconds(1));
  EXPECT_EQ(harness_->registry.Devices(/*free_only=*/true).size(), 1u);
}

TEST_F(JobLossesTest, AWorkerThatHasNotEndedARunIsOfferedToNoJob) {
  Run(2);
  harness_->Worker("a").silent_on.insert(Message::kAbort);
  ASSERT_TRUE(harness_->jobs->Cancel(job_).ok());
  harness_->Pump();
  EXPECT_EQ(WorkerState("a"), job_);
  EXPECT_EQ(WorkerState("b"), "");
  const std::string next = harness_->Submit(spec_);  // Wants both.
  harness_->Pump();
  EXPECT_EQ(harness_->Get(next).state(), v1::JOB_STATE_PENDING);
  // It says so, too, when it comes back.
  harness_->Disconnect("a");
  v1::ConnectRequest ended;
  ended.mutable_run_ended()->set_job(job_);
  ended.mutable_run_ended()->set_generation(1);
  harness_->Connect("a", {{job_, 1}});
  EXPECT_EQ(WorkerState("a"), job_);
  harness_->jobs->OnMessage("a", ended);
  EXPECT_EQ(harness_->Await(next, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
}

}  // namespace
}  // namespace stagewright
