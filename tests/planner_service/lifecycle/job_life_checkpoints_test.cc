// What the planner makes of shares that are written, and of jobs that may start again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Message = v1::ConnectResponse;

class JobCheckpointsTest : public ::testing::Test {
 protected:
  JobCheckpointsTest() { spec_.mutable_checkpoints()->set_every_steps(10); }

  // A job on both workers that goes on until it is ended.
  void Run() {
    for (const char* worker : {"a", "b"}) {
      harness_.Connect(worker);
      harness_.Worker(worker).silent_on = {Message::kStart};
      harness_.Worker(worker).total_steps = 100;
    }
    job_ = harness_.Submit(spec_);
    ASSERT_EQ(harness_.Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    harness_.Pump();
    ASSERT_GE(Job().plan().program().devices_size(), 2);
  }
  v1::Job Job() const { return harness_.Get(job_); }

  // Every device but the first `missing` ones has written its share.
  void WriteShares(int64_t step, const std::string& error = "", bool skipped = false,
                   int missing = 0) {
    const v1::Job job = Job();
    for (const auto& program : job.plan().program().devices()) {
      if (missing-- > 0) continue;
      v1::ConnectRequest message;
      v1::ShardWritten* written = message.mutable_shard_written();
      written->set_job(job_);
      written->set_generation(job.generation());
      written->set_step(step);
      written->set_device(program.device());
      written->add_files()->set_name(absl::StrCat("model-", program.device()));
      written->set_error(error);
      written->set_skipped(skipped);
      const std::string& device = job.devices(program.device());
      harness_.jobs->OnMessage(device.substr(0, device.find('/')), message);
    }
    harness_.Pump();
  }
  void Complete(const std::string& error = "", int64_t step = 10) {
    v1::ConnectRequest message;
    message.mutable_checkpoint_written()->set_job(job_);
    message.mutable_checkpoint_written()->set_generation(Job().generation());
    message.mutable_checkpoint_written()->set_step(step);
    message.mutable_checkpoint_written()->set_error(error);
    harness_.jobs->OnMessage("a", message);
  }
  // A worker that the other one gives the run up for.
  void Lose(const std::string& worker, const std::string& other) {
    harness_.Disconnect(worker);
    v1::ConnectRequest failed;
    failed.mutable_failed()->set_job(job_);
    failed.mutable_failed()->set_generation(Job().generation());
    failed.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    failed.mutable_failed()->set_message("its peer has gone");
    harness_.jobs->OnMessage(other, failed);
  }
  int Manifests() {
    return harness_.Heard("a", Message::kWriteManifest) +
           harness_.Heard("b", Message::kWriteManifest);
  }

  RecordingStore store_;
  JobHarness harness_{&store_};
  v1::JobSpec spec_ = SmallSpec();
  std::string job_;
};

TEST_F(JobCheckpointsTest, TheManifestIsLast) {
  Run();
  WriteShares(10, "", false, /*missing=*/1);
  EXPECT_EQ(Manifests(), 0);
  WriteShares(10);
  EXPECT_EQ(Manifests(), 1);
  EXPECT_EQ(Job().checkpoint_step(), 0);
  Complete();
  EXPECT_EQ(Job().checkpoint_step(), 10);
  EXPECT_THAT(Job().warnings(), IsEmpty());
}

TEST_F(JobCheckpointsTest, OneThatCannotBeWrittenIsSkippedWithAWarning) {
  Run();
  WriteShares(10, "no space left");
  WriteShares(20, "no space left");
  EXPECT_EQ(Manifests(), 0);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(Job().warnings(), ElementsAre(HasSubstr("after step 20 was skipped: device ")));
  WriteShares(30);
  EXPECT_EQ(Manifests(), 1);
}

TEST_F(JobCheckpointsTest, OrItFailsTheJobIfThatIsThePolicy) {
  spec_.mutable_checkpoints()->set_fail_job(true);
  Run();
  WriteShares(10, "still writing", /*skipped=*/true, /*missing=*/1);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  for (int i = 0; i < 2; ++i) {
    WriteShares(10, "who skipped it has removed it");
    EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING) << Job().message();
  }
  WriteShares(20, "no space left");
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job().message(), HasSubstr("step 20 could not be written"));
  EXPECT_THAT(Job().message(), HasSubstr("no space left"));
}

TEST_F(JobCheckpointsTest, NoneFromHalfwayFailsIt) {
  spec_.mutable_checkpoints()->set_fail_job(true);
  spec_.mutable_checkpoints()->set_every_steps(10);
  spec_.set_max_restarts(1);
  Run();
  WriteShares(5, "no space left");
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING) << Job().message();
  EXPECT_THAT(Job().warnings(), ElementsAre(HasSubstr("after step 5 was skipped: device ")));
  WriteShares(15);
  Complete("no space left", 15);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING) << Job().message();
  EXPECT_THAT(Job().warnings(), ElementsAre(HasSubstr("after step 15 was skipped: worker a")));
  WriteShares(20, "no space left");
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
}

TEST_F(JobCheckpointsTest, AManifestThatCannotBeWrittenIsTold) {
  Run();
  WriteShares(10);
  Complete("no space left");
  EXPECT_EQ(Job().checkpoint_step(), 0);
  EXPECT_THAT(Job().warnings(), ElementsAre(HasSubstr("worker a: no space left")));
}

TEST_F(JobCheckpointsTest, AnotherWorkerWritesTheManifestOfOneThatIsLost) {
  spec_.set_max_restarts(1);
  Run();
  harness_.Worker("a").silent_on.insert(Message::kWriteManifest);
  WriteShares(10);
  ASSERT_EQ(harness_.Heard("a", Message::kWriteManifest), 1);
  Lose("a", "b");
  std::vector<Message::MessageCase> told;
  for (const Message& message : harness_.Worker("b").heard) {
    if (message.has_write_manifest() || message.has_abort()) told.push_back(message.message_case());
  }
  // Before the run ends there, which waits for it.
  EXPECT_THAT(told, ElementsAre(Message::kWriteManifest, Message::kAbort));
}

TEST_F(JobCheckpointsTest, AManifestThatIsBeingWrittenIsNotWrittenTwice) {
  spec_.set_max_restarts(1);
  Run();
  harness_.Worker("a").silent_on.insert(Message::kWriteManifest);
  WriteShares(10);
  Lose("b", "a");
  EXPECT_EQ(Manifests(), 1);
}

TEST_F(JobCheckpointsTest, WhereAllAreLostTheNextRunWritesTheManifest) {
  spec_.set_max_restarts(3);
  Run();
  harness_.Worker("a").silent_on.insert(Message::kWriteManifest);
  WriteShares(10);
  for (const char* worker : {"a", "b"}) harness_.Disconnect(worker);
  const auto prepared = [this](const std::string& worker) {
    const auto& heard = harness_.Worker(worker).heard;
    const auto last = std::find_if(heard.rbegin(), heard.rend(),
                                   [](const Message& message) { return message.has_prepare(); });
    return last->prepare();
  };
  const auto stays = [this] {  // In the last run.
    int64_t step = -1;
    for (const Message& message : harness_.Worker("a").heard)
      if (message.has_connect_peers()) step = message.connect_peers().unwritten_step();
    return step;
  };
  EXPECT_FALSE(prepared("a").has_unwritten());
  for (const char* worker : {"a", "b"}) harness_.Connect(worker);
  harness_.Await(job_, v1::JOB_STATE_RUNNING);
  ASSERT_EQ(Job().restarts(), 1);
  for (const char* worker : {"a", "b"}) {
    EXPECT_EQ(prepared(worker).generation(), 2);
    EXPECT_EQ(prepared(worker).unwritten().step(), 10);
    EXPECT_EQ(prepared(worker).unwritten().generation(), 1);
    EXPECT_FALSE(prepared(worker).unwritten().files().empty());
  }
  EXPECT_EQ(stays(), 10);
  // That run has resumed from it, or could not.
  for (const char* worker : {"a", "b"}) harness_.Disconnect(worker);
  for (const char* worker : {"a", "b"}) harness_.Connect(worker);
  harness_.PassUntil(absl::Now() + absl::Seconds(3));
  harness_.Await(job_, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(prepared("a").generation(), 3);
  EXPECT_FALSE(prepared("a").has_unwritten());
  EXPECT_EQ(stays(), 0);
}

TEST_F(JobCheckpointsTest, AJobThatLosesAWorkerStartsAgainOnWhatIsLeft) {
  spec_.set_max_restarts(1);
  spec_.set_num_devices(2);  // The model does not fit on one.
  Run();
  harness_.Connect("c");
  harness_.Disconnect("b");
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RECOVERING);
  v1::ConnectRequest failed;
  failed.mutable_failed()->set_job(job_);
  failed.mutable_failed()->set_generation(1);
  failed.mutable_failed()->set_message("device 1 is gone");
  harness_.jobs->OnMessage("a", failed);
  harness_.jobs->OnMessage("a", failed);  // It comes when the run is over.
  harness_.Worker("c").silent_on = {Message::kStart};
  harness_.Worker("c").total_steps = 100;
  const v1::Job again = harness_.Await(job_, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(again.state(), v1::JOB_STATE_RUNNING) << again.message();
  EXPECT_EQ(again.generation(), 2);
  EXPECT_EQ(again.restarts(), 1);
  EXPECT_EQ(again.devices_size(), 2);
  int restarts = 0;
  for (const Message& message : harness_.Worker("a").heard)
    restarts += message.has_prepare() && message.prepare().restart();
  EXPECT_EQ(restarts, 1);
  // The next loss is one too many.
  harness_.Disconnect("a");
  harness_.jobs->Tick(absl::Now() + absl::Seconds(11));
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
}

TEST_F(JobCheckpointsTest, AFailureThatIsNoLossIsNotRepeated) {
  spec_.set_max_restarts(1);
  Run();
  v1::ConnectRequest failed;
  failed.mutable_failed()->set_job(job_);
  failed.mutable_failed()->set_generation(1);
  failed.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
  failed.mutable_failed()->set_message("the loss is nan");
  harness_.jobs->OnMessage("a", failed);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
}

}  // namespace
}  // namespace stagewright
