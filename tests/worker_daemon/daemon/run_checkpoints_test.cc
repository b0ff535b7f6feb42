#include "worker_daemon/daemon/run_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "tests/worker_daemon/daemon/run_checkpoints_case.h"
#include "worker_daemon/checkpoint/output_owner.h"

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(RunCheckpointsTest, OneThreadWritesAllManifestsInTheirOrder) {
  const auto checkpoints = Taken();
  for (int64_t step = 1; step <= 8; ++step) {
    std::filesystem::create_directories(Directory(step));
    checkpoints->Complete(Order(step), graph_);
    if (step % 3 == 0) checkpoints->AwaitCompleted();
  }
  checkpoints->AwaitCompleted();
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(steps_, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(errors_, ::testing::Each(""));
  EXPECT_EQ(threads_.size(), 1u);
  EXPECT_FALSE(threads_.contains(std::this_thread::get_id()));
  EXPECT_FALSE(std::filesystem::exists(Directory(6)));  // Two are kept.
  EXPECT_TRUE(std::filesystem::exists(Directory(7) + "/manifest.json"));
  EXPECT_TRUE(std::filesystem::exists(Directory(8) + "/manifest.json"));
}

TEST_F(RunCheckpointsTest, AJobThatMayStartAgainSavesHalfwayOrWaits) {
  const auto due = [&](int64_t every, bool asynchronous) {
    prepare_.mutable_spec()->mutable_checkpoints()->set_every_steps(every);
    const auto checkpoints = Make();
    DeviceJob job;
    auto program = std::make_shared<Program>();
    program->asynchronous = asynchronous;
    job.program = std::move(program);
    checkpoints->AddTo(job);
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= 10; ++step) {
      if (job.checkpoint_due(step)) steps.push_back(step);
    }
    return std::pair(steps, job.await_checkpoints);
  };
  EXPECT_EQ(due(5, false), std::pair(std::vector<int64_t>({5, 10}), false));
  prepare_.mutable_spec()->set_max_restarts(1);
  EXPECT_EQ(due(5, false), std::pair(std::vector<int64_t>({2, 5, 7, 10}), false));
  EXPECT_EQ(due(1, false), std::pair(std::vector<int64_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), true));
  EXPECT_EQ(due(0, false), std::pair(std::vector<int64_t>(), false));
  prepare_.mutable_program()->set_asynchronous(true);
  EXPECT_EQ(due(5, true), std::pair(std::vector<int64_t>({5, 10}), true));
}

TEST_F(RunCheckpointsTest, AStopgapGoesWithTheNextAndIsNotCounted) {
  prepare_.mutable_spec()->mutable_checkpoints()->set_every_steps(4);
  prepare_.mutable_spec()->set_max_restarts(1);
  const auto checkpoints = Taken();
  for (int64_t step = 2; step <= 14; step += 2) {
    std::filesystem::create_directories(Directory(step));
    checkpoints->Complete(Order(step), graph_);
  }
  checkpoints->AwaitCompleted();
  for (int64_t step : {8, 12, 14}) EXPECT_TRUE(std::filesystem::exists(Directory(step))) << step;
  for (int64_t step : {2, 4, 6, 10}) EXPECT_FALSE(std::filesystem::exists(Directory(step))) << step;
}

TEST_F(RunCheckpointsTest, TheEndOfAJobWaitsForItsManifests) {
  auto checkpoints = Taken();
  for (int64_t step = 1; step <= 5; ++step) {
    std::filesystem::create_directories(Directory(step));
    checkpoints->Complete(Order(step), graph_);
  }
  checkpoints.reset();
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(steps_, ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(RunCheckpointsTest, OneThatCannotBeWrittenIsReportedAndHoldsUpNone) {
  const auto checkpoints = Taken();
  std::filesystem::create_directories(Directory(2));
  checkpoints->Complete(Order(1), graph_);  // Its directory is not there.
  checkpoints->Complete(Order(2), graph_);
  checkpoints->AwaitCompleted();
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(steps_, ElementsAre(1, 2));
  EXPECT_THAT(errors_, ElementsAre(HasSubstr(Directory(1)), ""));
}

TEST_F(RunCheckpointsTest, AManifestThatIsOrderedAgainIsWrittenOnceAndReportedAgain) {
  const auto checkpoints = Taken();
  std::filesystem::create_directories(Directory(1));
  checkpoints->Complete(Order(1), graph_);
  checkpoints->AwaitCompleted();
  std::filesystem::remove(Directory(1) + "/manifest.json");
  checkpoints->Complete(Order(1), graph_);
  checkpoints->AwaitCompleted();
  EXPECT_FALSE(std::filesystem::exists(Directory(1) + "/manifest.json"));
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(steps_, ElementsAre(1, 1));
  EXPECT_THAT(errors_, ElementsAre("", ""));
}

TEST_F(RunCheckpointsTest, AnotherJobsCheckpointsAreRefusedWithOrWithoutAPolicy) {
  RunWithCheckpoints({1});
  BecomeAnotherJob();
  for (const bool saves : {true, false}) {
    if (!saves) prepare_.mutable_spec()->clear_checkpoints();
    const absl::Status status = Refusal();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("jobs/1, run jobs-1-a1"));
  }
}

TEST_F(RunCheckpointsTest, AJobThatHasNotEndedKeepsItsDirectory) {
  v1::Prepare other = prepare_;
  other.set_run("jobs-2-b2");
  other.mutable_spec()->set_overwrite(true);
  other.add_unfinished_runs("jobs-1-a1");
  const auto second = Make(other);
  v1::Prepared prepared;
  ASSERT_EQ(second->Resume(&prepared), absl::OkStatus());
  const auto first = Taken();  // While the second was prepared.
  EXPECT_THAT(std::string(second->TakeOutput().message()), HasSubstr("jobs/1, run jobs-1-a1"));
  EXPECT_EQ(second->Resume(&prepared).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(first->CheckOwned(), absl::OkStatus());
}

TEST_F(RunCheckpointsTest, OverwritingBeginsAnew) {
  RunWithCheckpoints({1, 2});
  BecomeAnotherJob();
  prepare_.mutable_spec()->set_overwrite(true);
  RunWithCheckpoints({});
  EXPECT_EQ(first_step_, 0);
  EXPECT_FALSE(HasCheckpoints(prepare_.spec().output_path()));
}

TEST_F(RunCheckpointsTest, AJobThatGoesOnFromThereTakesOverAndPrunesWhatItGoesOnFrom) {
  RunWithCheckpoints({1, 2});
  BecomeAnotherJob();
  prepare_.mutable_spec()->set_resume_path(prepare_.spec().output_path());
  prepare_.mutable_spec()->set_overwrite(true);  // Has nothing to say here.
  RunWithCheckpoints({3, 4});
  EXPECT_EQ(first_step_, 2);
  for (const int64_t step : {1, 2}) EXPECT_FALSE(std::filesystem::exists(Directory(step)));
  for (const int64_t step : {3, 4}) EXPECT_TRUE(std::filesystem::exists(Directory(step)));
}

TEST_F(RunCheckpointsTest, AJobThatStartsAgainPassesOverNewerCheckpointsOfAnother) {
  RunWithCheckpoints({1, 2});
  BecomeAnotherJob();
  prepare_.mutable_spec()->set_resume_path(Directory(1));
  RunWithCheckpoints({});
  prepare_.set_generation(2);
  prepare_.set_restart(true);
  RunWithCheckpoints({});
  EXPECT_EQ(first_step_, 1);
}

class ResumeInPlaceTest : public RunCheckpointsTest,
                          public ::testing::WithParamInterface<std::tuple<bool, bool>> {};

TEST_P(ResumeInPlaceTest, AJobThatStartsAgainGoesOnFromWhereItWasToldTo) {
  const auto [overwrite, taken] = GetParam();
  RunWithCheckpoints({1, 2});
  BecomeAnotherJob();
  prepare_.mutable_spec()->set_overwrite(overwrite);
  const std::string output = prepare_.spec().output_path();
  for (const std::string& from : {output, output + "/./", output + "/checkpoints/../checkpoints"}) {
    prepare_.mutable_spec()->set_resume_path(from);
    if (taken) RunWithCheckpoints({});
    prepare_.set_generation(2);
    prepare_.set_restart(true);
    RunWithCheckpoints({});
    EXPECT_EQ(first_step_, 2) << from;
    EXPECT_TRUE(std::filesystem::exists(Directory(2))) << from;
  }
}

INSTANTIATE_TEST_SUITE_P(OverwriteTaken, ResumeInPlaceTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()));

TEST_F(RunCheckpointsTest, WithoutAPolicyTheNewestThatThePlannerAskedForIsKept) {
  prepare_.mutable_spec()->clear_checkpoints();
  RunWithCheckpoints({1, 2});
  EXPECT_FALSE(std::filesystem::exists(Directory(1)));
  EXPECT_TRUE(std::filesystem::exists(Directory(2)));
}

TEST_F(RunCheckpointsTest, AJobOfAnOlderVersionGoesOnAfterTheUpdate) {
  RunWithCheckpoints({});
  std::filesystem::create_directories(Directory(4));
  Manifest manifest;
  manifest.step = 4;
  ASSERT_EQ(WriteManifest(Directory(4), manifest), absl::OkStatus());
  std::filesystem::remove(prepare_.spec().output_path() + "/stagewright-job.json");
  prepare_.set_restart(true);
  RunWithCheckpoints({});
  EXPECT_EQ(first_step_, 4);
}

TEST_F(RunCheckpointsTest, WhoLostTheDirectoryWritesNothingThere) {
  const auto first = Taken();
  DeviceJob job;
  job.program = std::make_shared<const Program>();
  first->AddTo(job);
  EXPECT_EQ(job.may_write(), absl::OkStatus());
  BecomeAnotherJob();
  RunWithCheckpoints({});
  EXPECT_EQ(job.may_write().code(), absl::StatusCode::kFailedPrecondition);
  std::filesystem::create_directories(Directory(1));
  first->Complete(Order(1), graph_);
  first->AwaitCompleted();
  EXPECT_FALSE(HasCheckpoints(prepare_.spec().output_path()));
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(errors_, ElementsAre(HasSubstr("has taken it")));
}

TEST_F(RunCheckpointsTest, ADirectoryThatAnotherJobTookMeanwhileIsLeftToIt) {
  const v1::Prepare slow = prepare_;
  const auto checkpoints = Make(slow);
  v1::Prepared prepared;
  ASSERT_EQ(checkpoints->Resume(&prepared), absl::OkStatus());
  BecomeAnotherJob();
  RunWithCheckpoints({1});
  EXPECT_EQ(checkpoints->TakeOutput().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(Directory(1) + "/manifest.json"));
  EXPECT_EQ(CheckOwned(slow.spec().output_path(), prepare_.run(), 1), absl::OkStatus());
}

TEST_F(RunCheckpointsTest, WhatAnEarlierGenerationStillWritesChangesNothing) {
  const v1::Prepare earlier = prepare_;
  const auto first = Taken(earlier);
  DeviceJob job;
  job.program = std::make_shared<const Program>();
  first->AddTo(job);
  EXPECT_EQ(job.may_write(), absl::OkStatus());
  prepare_.set_generation(2);
  RunWithCheckpoints({100});
  EXPECT_EQ(job.may_write().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(WriteDeviceFiles(Directory(100), DeviceId(0), {}, {}, {}, job.writer).status().code(),
            absl::StatusCode::kFailedPrecondition);
  first->Complete(Order(100), graph_);
  first->AwaitCompleted();
  const auto manifest = ReadManifest(Directory(100));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->generation, 2);
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(errors_, ElementsAre("", HasSubstr("generation 2's of this job")));
}

TEST_F(RunCheckpointsTest, WhatAnEarlierGenerationHasNotCompletedIsCompletedFirst) {
  prepare_.mutable_spec()->set_max_restarts(1);
  RunWithCheckpoints({10});
  std::filesystem::create_directories(Directory(20));  // Its shares are written.
  prepare_.set_restart(true);
  prepare_.set_generation(2);
  *prepare_.mutable_unwritten() = Order(20);
  const auto resumed_from = [this] {  // The output directory may be another worker's already.
    const auto checkpoints = Make();
    checkpoints->CompleteEarlier(*graph_);
    v1::Prepared prepared;
    EXPECT_EQ(checkpoints->Resume(&prepared), absl::OkStatus());
    EXPECT_EQ(checkpoints->TakeOutput(), absl::OkStatus());
    return prepared.first_step();
  };
  EXPECT_EQ(resumed_from(), 20);
  EXPECT_EQ(resumed_from(), 20);
  EXPECT_EQ(ReadManifest(Directory(20))->generation, 1);
  // A share that is not there makes the one before the newest.
  prepare_.mutable_unwritten()->set_step(30);
  prepare_.mutable_unwritten()->add_files()->set_name("model-00000.safetensors");
  EXPECT_EQ(resumed_from(), 20);
}

TEST_F(RunCheckpointsTest, WhatEarlierGenerationsLeftUnfinishedGoesBeforeAnyDeviceSaves) {
  RunWithCheckpoints({10});
  for (const int64_t step : {20, 30, 40}) std::filesystem::create_directories(Directory(step));
  const v1::Prepare earlier = prepare_;
  const auto old = Make(earlier);
  prepare_.set_restart(true);
  prepare_.set_generation(2);
  *prepare_.mutable_unwritten() = Order(40);  // It lacks a share.
  prepare_.mutable_unwritten()->add_files()->set_name("model-00000.safetensors");
  const auto checkpoints = Taken();
  EXPECT_EQ(first_step_, 10);
  old->DropUnfinished(0);  // The directory is not its any more.
  EXPECT_TRUE(std::filesystem::exists(Directory(20)));
  checkpoints->DropUnfinished(30);
  EXPECT_TRUE(std::filesystem::exists(Directory(10) + "/manifest.json"));
  EXPECT_FALSE(std::filesystem::exists(Directory(20)));
  EXPECT_TRUE(std::filesystem::exists(Directory(30)));
  EXPECT_TRUE(std::filesystem::exists(Directory(40)));
}

// Checkpoints of which another device has written its share, and this one says what became of its.
class FailedCheckpointsTest : public RunCheckpointsTest {
 protected:
  FailedCheckpointsTest() {
    prepare_.mutable_spec()->mutable_checkpoints()->set_every_steps(10);
    checkpoints_ = Taken();
    job_.device = DeviceId(1);
    job_.program = std::make_shared<Program>();
    checkpoints_->AddTo(job_);
  }
  std::string Share(int64_t step) const { return Directory(step) + "/model-00000.safetensors"; }
  void WriteShare(int64_t step) {
    std::filesystem::create_directories(Directory(step));
    std::ofstream(Share(step)) << "of another device";
  }
  void Tell(int64_t step, const char* error, bool skipped = false) {
    WriteShare(step);
    CheckpointReport report;
    report.step = step;
    report.skipped = skipped;
    if (*error != '\0') report.status = absl::UnavailableError(error);
    job_.on_checkpoint(report);
  }
  void Announce(int64_t step) {
    v1::CheckpointAfter message;
    message.set_step(step);
    message.set_hold(true);
    checkpoints_->Announce(message);
  }
  std::vector<int64_t> StepsThatAreLeft() const {
    std::vector<int64_t> left;
    for (int64_t step = 0; step <= 100; ++step) {
      if (std::filesystem::exists(Directory(step))) left.push_back(step);
    }
    return left;
  }

  std::unique_ptr<RunCheckpoints> checkpoints_;
  DeviceJob job_;
};

TEST_F(FailedCheckpointsTest, MakeRoomForTheNext) {
  Tell(10, "");  // Another device may still write its share.
  for (const int64_t step : {20, 30, 40}) Tell(step, "no space left");
  for (const int64_t step : {50, 60, 70}) Tell(step, "the one before hangs", /*skipped=*/true);
  ASSERT_EQ(job_.may_write(), absl::OkStatus());
  EXPECT_THAT(StepsThatAreLeft(), ElementsAre(10));
  WriteShare(70);  // Another device had not written its share yet.
  ASSERT_EQ(job_.may_write(), absl::OkStatus());
  EXPECT_THAT(StepsThatAreLeft(), ElementsAre(10));
}

TEST_F(FailedCheckpointsTest, WhoComesTooLateToSaveHasFailedOneButNotIfItWasDueAnyway) {
  for (const int64_t step : {20, 23}) WriteShare(step);
  ASSERT_TRUE(job_.checkpoint_due(20));
  ASSERT_FALSE(job_.checkpoint_due(23));
  ASSERT_FALSE(job_.checkpoint_due(24));
  for (const int64_t step : {20, 23}) Announce(step);  // To wait there.
  ASSERT_EQ(job_.may_write(), absl::OkStatus());
  EXPECT_THAT(StepsThatAreLeft(), ElementsAre(20));
}

TEST_F(FailedCheckpointsTest, WithoutAManifestTheyGoAndAreToldSoAgain) {
  for (const int64_t step : {10, 20}) Tell(step, "");
  v1::WriteManifest order = Order(20);
  order.add_files()->set_name("model-00001.safetensors");  // It is not there.
  checkpoints_->Complete(order, graph_);
  checkpoints_->AwaitCompleted();
  ASSERT_EQ(job_.may_write(), absl::OkStatus());
  EXPECT_THAT(StepsThatAreLeft(), ElementsAre(10));
  checkpoints_->Complete(Order(20), graph_);
  checkpoints_->AwaitCompleted();
  EXPECT_THAT(StepsThatAreLeft(), ElementsAre(10));
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(errors_, ElementsAre("", "", HasSubstr("model-00001"), HasSubstr("are removed")));
}

TEST_F(FailedCheckpointsTest, StayWhereALaterGenerationMayHaveWrittenThem) {
  Tell(40, "no space left");
  v1::Prepare later = prepare_;
  later.set_generation(2);
  const auto owner = Taken(later);
  EXPECT_FALSE(job_.may_write().ok());
  EXPECT_THAT(StepsThatAreLeft(), ElementsAre(40));
}

TEST_F(RunCheckpointsTest, ARunThatIsOverBeginsToWriteNothing) {
  const auto checkpoints = Taken();
  DeviceJob job;
  job.program = std::make_shared<const Program>();
  checkpoints->AddTo(job);
  checkpoints->Abort();
  EXPECT_TRUE(absl::IsCancelled(job.may_write()));
  EXPECT_TRUE(absl::IsCancelled(checkpoints->TakeOutput()));
}

TEST_F(RunCheckpointsTest, ARunThatHasNoGraphYetRefusesToWriteOne) {
  const auto checkpoints = Make();
  checkpoints->Complete(Order(3), nullptr);
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(steps_, ElementsAre(3));
  EXPECT_THAT(errors_, ElementsAre(HasSubstr("not prepared")));
}

// Devices 0 and 1 as the run has them, whose steps the test counts.
class HoldTest : public RunCheckpointsTest {
 protected:
  HoldTest() {
    prepare_.mutable_spec()->clear_checkpoints();
    Begin(/*asynchronous=*/false);
  }

  void Begin(bool asynchronous) {
    prepare_.mutable_program()->set_asynchronous(asynchronous);
    checkpoints_ =
        std::make_unique<RunCheckpoints>(prepare_, [this](const v1::ConnectRequest& message) {
          if (message.has_shard_written()) shards_.push_back(message.shard_written());
          if (message.has_checkpoint_agreed()) answers_.push_back(message.checkpoint_agreed());
        });
    Program program;
    program.asynchronous = asynchronous;
    for (int32_t device : {0, 1}) {
      jobs_[device].device = DeviceId(device);
      jobs_[device].program = std::make_shared<const Program>(program);
      checkpoints_->AddTo(jobs_[device]);
    }
  }

  static v1::CheckpointAfter After(int64_t step, bool hold = false, bool offer = false) {
    v1::CheckpointAfter message;
    message.set_step(step);
    message.set_hold(hold);
    message.set_offer(offer);
    return message;
  }

  std::vector<v1::ShardWritten> shards_;
  std::vector<v1::CheckpointAgreed> answers_;
  std::unique_ptr<RunCheckpoints> checkpoints_;
  DeviceJob jobs_[2];
};

TEST_F(HoldTest, DevicesWaitAfterTheStepUntilTheyMayGoOn) {
  EXPECT_FALSE(jobs_[0].checkpoint_due(4));
  checkpoints_->Announce(After(5, /*hold=*/true));
  EXPECT_TRUE(jobs_[0].checkpoint_due(5));
  EXPECT_TRUE(jobs_[0].holds());
  EXPECT_FALSE(jobs_[1].holds());
  std::atomic<bool> went_on = false;
  std::thread device([&] {
    jobs_[0].await_go_on();
    went_on = true;
  });
  EXPECT_TRUE(jobs_[1].checkpoint_due(5));
  EXPECT_TRUE(jobs_[1].holds());
  EXPECT_FALSE(went_on);
  checkpoints_->GoOn();
  device.join();
  jobs_[1].await_go_on();
  EXPECT_FALSE(jobs_[0].checkpoint_due(6));
  EXPECT_FALSE(jobs_[0].holds());
}

TEST_F(HoldTest, WhoIsFurtherOnSaysSoAndDoesNotWait) {
  EXPECT_FALSE(jobs_[0].checkpoint_due(5));
  checkpoints_->Announce(After(5, /*hold=*/true));
  ASSERT_EQ(shards_.size(), 1u);
  EXPECT_EQ(shards_[0].device(), 0);
  EXPECT_TRUE(shards_[0].skipped());
  EXPECT_FALSE(jobs_[0].holds());
  EXPECT_TRUE(jobs_[1].checkpoint_due(5));
  EXPECT_TRUE(jobs_[1].holds());
}

TEST_F(HoldTest, TellsTheNewestSharesOfEachDeviceAgain) {
  for (const int64_t step : {2, 4, 6}) {
    CheckpointReport report;
    report.step = step;
    jobs_[0].on_checkpoint(report);
  }
  shards_.clear();
  checkpoints_->RepeatShares();
  ASSERT_EQ(shards_.size(), 2u);
  EXPECT_EQ(shards_[0].device(), 0);
  EXPECT_EQ(shards_[0].step(), 4);
  EXPECT_EQ(shards_[1].step(), 6);
}

TEST_F(HoldTest, TellsAShareAgainThatCameAfterASkippedCheckpoint) {
  CheckpointReport skipped;
  skipped.step = 6;
  skipped.skipped = true;
  skipped.status = absl::UnavailableError("the one before is still being written");
  jobs_[0].on_checkpoint(skipped);
  CheckpointReport written;
  written.step = 4;
  jobs_[0].on_checkpoint(written);
  shards_.clear();
  checkpoints_->RepeatShares();
  ASSERT_EQ(shards_.size(), 2u);
  EXPECT_EQ(shards_[0].step(), 4);
  EXPECT_EQ(shards_[0].error(), "");
  EXPECT_EQ(shards_[1].step(), 6);
  EXPECT_TRUE(shards_[1].skipped());
}

TEST_F(HoldTest, ACheckpointThatIsNotHeldStopsNobody) {
  checkpoints_->Announce(After(5));
  EXPECT_TRUE(jobs_[0].checkpoint_due(5));
  EXPECT_FALSE(jobs_[0].holds());
}

TEST_F(HoldTest, AsynchronousRunsEmptyThePipelineAfterStepsThatAllAgreedTo) {
  Begin(/*asynchronous=*/true);
  const DeviceJob& job = jobs_[0];
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(job.flush_after(2), kNever);
  checkpoints_->Announce(After(4, /*hold=*/true, /*offer=*/true));
  checkpoints_->Announce(After(6, /*hold=*/true, /*offer=*/true));
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_TRUE(answers_[0].late());
  EXPECT_EQ(answers_[1].step(), 6);
  EXPECT_FALSE(answers_[1].late());
  EXPECT_EQ(job.flush_after(3), kNever);
  EXPECT_FALSE(job.checkpoint_due(4));
  checkpoints_->Announce(After(6, /*hold=*/true));
  EXPECT_EQ(checkpoints_->flush_after(), 6);
  EXPECT_EQ(job.flush_after(4), 6);
  EXPECT_TRUE(job.checkpoint_due(6));
  EXPECT_TRUE(job.holds());
  checkpoints_->GoOn();
  job.await_go_on();
  // Nothing comes of an offer that is taken back.
  checkpoints_->Announce(After(9, /*hold=*/true, /*offer=*/true));
  checkpoints_->GoOn();
  EXPECT_EQ(job.flush_after(7), kNever);
  EXPECT_FALSE(job.checkpoint_due(9));
  EXPECT_FALSE(job.holds());
  EXPECT_TRUE(shards_.empty());
}

TEST_F(HoldTest, AStepThatIsDueAnywayIsSettledAsAnyOther) {
  prepare_.mutable_spec()->mutable_checkpoints()->set_every_steps(1);
  Begin(/*asynchronous=*/true);
  checkpoints_->Announce(After(6, /*hold=*/true, /*offer=*/true));
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_FALSE(answers_[0].late());
  checkpoints_->Announce(After(6, /*hold=*/true));
  EXPECT_EQ(checkpoints_->flush_after(), 6);
  std::thread device([&] { EXPECT_EQ(jobs_[0].flush_after(4), 5); });  // Returns.
  device.join();
  EXPECT_TRUE(jobs_[0].checkpoint_due(6));
  EXPECT_TRUE(jobs_[0].holds());
}

TEST_F(HoldTest, NobodyWaitsInARunThatIsOver) {
  Begin(/*asynchronous=*/true);
  checkpoints_->Announce(After(5, /*hold=*/true));
  EXPECT_TRUE(jobs_[0].checkpoint_due(5));
  std::thread device([&] { jobs_[0].await_go_on(); });
  checkpoints_->Abort();
  device.join();
  // What the planner asked for before it heard of the end.
  checkpoints_->Announce(After(6, /*hold=*/true));
  EXPECT_TRUE(jobs_[1].checkpoint_due(6));
  jobs_[1].await_go_on();
  checkpoints_->Announce(After(9, /*hold=*/true, /*offer=*/true));
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_TRUE(answers_[0].late());
  jobs_[0].flush_after(7);
}

TEST_F(HoldTest, WhoHasSavedAfterAStepThatIsDueAnywaySaysThatItDoesNotWait) {
  prepare_.mutable_spec()->mutable_checkpoints()->set_every_steps(1);
  Begin(/*asynchronous=*/false);
  EXPECT_TRUE(jobs_[0].checkpoint_due(5));
  checkpoints_->Announce(After(5));
  EXPECT_TRUE(shards_.empty());
  EXPECT_TRUE(jobs_[0].checkpoint_due(6));
  checkpoints_->Announce(After(6, /*hold=*/true));
  ASSERT_EQ(shards_.size(), 1u);
  EXPECT_EQ(shards_[0].device(), 0);
  EXPECT_TRUE(shards_[0].skipped());
  EXPECT_FALSE(jobs_[0].holds());
}

}  // namespace
}  // namespace stagewright::testing
