// Messages that are lost with the stream that they were on: the job goes on, or starts again.
#include "planner_service/lifecycle/run_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using testing::FakeWorker;
using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;
using Told = v1::ConnectResponse;
using Said = v1::ConnectRequest;

class RunReportsTest : public ::testing::Test {
 protected:
  RunReportsTest() {
    spec_.set_max_restarts(1);
    for (const char* name : {"a", "b"}) harness_.Connect(name);
  }

  // Trains a job whose worker loses the messages; how often it was started again.
  int32_t RestartsOf(const std::string& worker, std::set<Told::MessageCase> told,
                     std::set<Said::MessageCase> said) {
    FakeWorker& fake = harness_.Worker(worker);
    fake.loses_told = std::move(told);
    fake.loses_said = std::move(said);
    const std::string job = harness_.Submit(spec_);
    const v1::Job ended = harness_.Await(job, v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.message();
    harness_.Pump();
    EXPECT_TRUE(fake.loses_told.empty() && fake.loses_said.empty()) << "nothing was lost";
    EXPECT_EQ(harness_.registry.Devices(/*free_only=*/true).size(), 2u) << "and all are free";
    return ended.restarts();
  }

  RecordingStore store_;
  JobHarness harness_{&store_};
  v1::JobSpec spec_ = SmallSpec();
};

TEST_F(RunReportsTest, WhatAWorkerMissesItIsToldAgainOrTheJobStartsAgain) {
  struct Case {
    Told::MessageCase lost;
    int32_t restarts;
  };
  // One that is lost while the job starts costs a restart: all have to connect anew.
  for (const Case& c : {Case{Told::kPrepare, 1}, Case{Told::kConnectPeers, 1},
                        Case{Told::kStart, 0}, Case{Told::kMerge, 0}, Case{Told::kRelease, 0}}) {
    for (const char* worker : {"a", "b"}) {
      if (c.lost == Told::kMerge && worker[0] == 'b') continue;  // The first worker merges.
      SCOPED_TRACE(absl::StrCat("told ", c.lost, ", worker ", worker));
      EXPECT_EQ(RestartsOf(worker, {c.lost}, {}), c.restarts);
    }
  }
}

TEST_F(RunReportsTest, WhatThePlannerMissesItIsToldAgainOrTheJobStartsAgain) {
  struct Case {
    Said::MessageCase lost;
    int32_t restarts;
  };
  for (const Case& c :
       {Case{Said::kPrepared, 1}, Case{Said::kConnected, 1}, Case{Said::kProgress, 0},
        Case{Said::kFinished, 0}, Case{Said::kMerged, 0}, Case{Said::kRunEnded, 0}}) {
    for (const char* worker : {"a", "b"}) {
      if (c.lost == Said::kMerged && worker[0] == 'b') continue;
      SCOPED_TRACE(absl::StrCat("said ", c.lost, ", worker ", worker));
      EXPECT_EQ(RestartsOf(worker, {}, {c.lost}), c.restarts);
    }
  }
}

TEST_F(RunReportsTest, AnAbortThatIsLostIsToldAgain) {
  spec_.set_steps(1000);
  for (const char* name : {"a", "b"}) harness_.Worker(name).silent_on = {Told::kStart};
  const std::string job = harness_.Submit(spec_);
  ASSERT_EQ(harness_.Await(job, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  harness_.Pump();
  harness_.Worker("b").loses_told = {Told::kAbort};
  ASSERT_TRUE(harness_.jobs->Cancel(job).ok());
  harness_.Pump();
  EXPECT_EQ(harness_.Heard("b", Told::kAbort), 2);
  EXPECT_EQ(harness_.registry.Devices(/*free_only=*/true).size(), 2u);
}

// The planner ends after it has stored that the job runs, and before a worker has heard it.
TEST(RunReports, APlannerAfterOneThatStartedTheJobStartsItAgain) {
  RecordingStore store;
  auto harness = std::make_unique<JobHarness>(&store);
  for (const char* name : {"a", "b"}) {
    harness->Connect(name);
    harness->Worker(name).silent_on = {Told::kStart};
  }
  const std::string job = harness->Submit(SmallSpec());
  ASSERT_EQ(harness->Await(job, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  harness->jobs->Suspend();
  harness = std::make_unique<JobHarness>(&store);
  for (const char* name : {"a", "b"}) {
    harness->Connect(name, {{job, 1}});
    EXPECT_EQ(harness->Heard(name, Told::kStart), 1);
  }
}

// By the clock one checkpoint is announced after the other: one that nobody completes would be the
// last.
TEST(RunReports, ACheckpointThatIsDueIsToldAgainUntilItIsWritten) {
  RecordingStore store;
  JobHarness harness(&store);
  v1::JobSpec spec = SmallSpec();
  spec.set_steps(100'000);
  spec.mutable_checkpoints()->set_every_ns(1);
  for (const char* name : {"a", "b"}) {
    harness.Connect(name);
    harness.Worker(name).silent_on = {Told::kStart};
    harness.Worker(name).total_steps = 100'000;
  }
  const std::string job = harness.Submit(spec);
  ASSERT_EQ(harness.Await(job, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  harness.Pump();
  const v1::Job running = harness.Get(job);
  const auto devices = running.plan().program().devices();
  const auto each = [&](const auto& say) {
    for (const v1::DeviceProgram& device : devices) {
      const std::string& name = running.devices(device.device());
      Said message;
      say(message, device.device());
      harness.jobs->OnMessage(name.substr(0, name.find('/')), message);
    }
  };
  each([&](Said& message, int32_t device) {
    message.mutable_progress()->set_job(job);
    message.mutable_progress()->set_generation(1);
    message.mutable_progress()->set_step(1);
    message.mutable_progress()->add_devices()->set_device(device);
    message.mutable_progress()->mutable_devices(0)->set_step_ns(1'000'000'000);
  });
  ASSERT_EQ(harness.Heard("b", Told::kCheckpointAfter), 1);
  const auto reconnect = [&](const std::string& name) {
    harness.Disconnect(name);
    harness.Connect(name, {{job, 1}});
    harness.Pump();
  };
  reconnect("b");
  ASSERT_EQ(harness.Heard("b", Told::kCheckpointAfter), 2);
  const int64_t step = [&] {
    int64_t newest = 0;
    for (const Told& message : harness.Worker("b").heard) {
      if (message.has_checkpoint_after()) newest = message.checkpoint_after().step();
    }
    return newest;
  }();
  const auto share = [&](Said& message, int32_t device) {
    message.mutable_shard_written()->set_job(job);
    message.mutable_shard_written()->set_generation(1);
    message.mutable_shard_written()->set_device(device);
    message.mutable_shard_written()->set_step(step);
  };
  each(share);
  EXPECT_EQ(harness.Heard("a", Told::kWriteManifest), 1);
  each(share);  // As workers say it again.
  EXPECT_EQ(harness.Heard("a", Told::kWriteManifest), 1);
  reconnect("b");
  EXPECT_EQ(harness.Heard("b", Told::kCheckpointAfter), 2);
  reconnect("a");
  EXPECT_EQ(harness.Heard("a", Told::kWriteManifest), 2);
  Said written;
  written.mutable_checkpoint_written()->set_job(job);
  written.mutable_checkpoint_written()->set_generation(1);
  written.mutable_checkpoint_written()->set_step(step);
  harness.jobs->OnMessage("a", written);
  reconnect("a");
  EXPECT_EQ(harness.Heard("a", Told::kWriteManifest), 2);
  EXPECT_EQ(harness.Get(job).checkpoint_step(), step);
}

}  // namespace
}  // namespace stagewright
