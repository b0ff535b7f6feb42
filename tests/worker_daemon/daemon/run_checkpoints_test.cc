#include "worker_daemon/daemon/run_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunCheckpointsTest : public ::testing::Test {
 protected:
  RunCheckpointsTest() {
    prepare_.set_job("jobs/1");
    prepare_.set_generation(1);
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    prepare_.mutable_spec()->set_output_path(TempPath(test->name()));
    prepare_.mutable_spec()->mutable_checkpoints()->set_every_steps(1);
    GraphMaker make;  // Without parameters, so that a checkpoint is whole without files.
    const Argument x = In(make.AddInput("x", {-1, 2}));
    graph_ = std::make_shared<const Graph>(
        make.Finish(make.AddNode("aten.mean.default", {x}, {Meta({})})));
  }

  std::string Directory(int64_t step) const {
    return CheckpointDirectory(CheckpointRoot(prepare_.spec().output_path()), step);
  }

  std::unique_ptr<RunCheckpoints> Make() {
    return std::make_unique<RunCheckpoints>(prepare_, [this](v1::ConnectRequest message) {
      absl::MutexLock lock(&mutex_);
      steps_.push_back(message.checkpoint_written().step());
      errors_.push_back(message.checkpoint_written().error());
      threads_.insert(std::this_thread::get_id());
    });
  }

  static v1::WriteManifest Order(int64_t step) {
    v1::WriteManifest order;
    order.set_job("jobs/1");
    order.set_generation(1);
    order.set_step(step);
    return order;
  }

  v1::Prepare prepare_;
  std::shared_ptr<const Graph> graph_;
  absl::Mutex mutex_;
  std::vector<int64_t> steps_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> errors_ ABSL_GUARDED_BY(mutex_);
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(RunCheckpointsTest, OneThreadWritesAllManifestsInTheirOrder) {
  const auto checkpoints = Make();
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

TEST_F(RunCheckpointsTest, TheEndOfAJobWaitsForItsManifests) {
  auto checkpoints = Make();
  for (int64_t step = 1; step <= 5; ++step) {
    std::filesystem::create_directories(Directory(step));
    checkpoints->Complete(Order(step), graph_);
  }
  checkpoints.reset();
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(steps_, ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(RunCheckpointsTest, OneThatCannotBeWrittenIsReportedAndHoldsUpNone) {
  const auto checkpoints = Make();
  std::filesystem::create_directories(Directory(2));
  checkpoints->Complete(Order(1), graph_);  // Its directory is not there.
  checkpoints->Complete(Order(2), graph_);
  checkpoints->AwaitCompleted();
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(steps_, ElementsAre(1, 2));
  EXPECT_THAT(errors_, ElementsAre(HasSubstr(Directory(1)), ""));
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
    checkpoints_ = std::make_unique<RunCheckpoints>(prepare_, [this](v1::ConnectRequest message) {
      if (message.has_shard_written()) shards_.push_back(message.shard_written());
    });
    for (int32_t device : {0, 1}) {
      jobs_[device].device = DeviceId(device);
      jobs_[device].program = std::make_shared<const Program>();
      checkpoints_->AddTo(jobs_[device]);
    }
  }

  std::vector<v1::ShardWritten> shards_;
  std::unique_ptr<RunCheckpoints> checkpoints_;
  DeviceJob jobs_[2];
};

TEST_F(HoldTest, DevicesWaitAfterTheStepUntilTheyMayGoOn) {
  EXPECT_FALSE(jobs_[0].checkpoint_due(4));
  checkpoints_->Announce(5, /*hold=*/true);
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
  checkpoints_->Announce(5, /*hold=*/true);
  ASSERT_EQ(shards_.size(), 1u);
  EXPECT_EQ(shards_[0].device(), 0);
  EXPECT_TRUE(shards_[0].skipped());
  EXPECT_FALSE(jobs_[0].holds());
  EXPECT_TRUE(jobs_[1].checkpoint_due(5));
  EXPECT_TRUE(jobs_[1].holds());
}

TEST_F(HoldTest, ACheckpointThatIsNotHeldStopsNobody) {
  checkpoints_->Announce(5, /*hold=*/false);
  EXPECT_TRUE(jobs_[0].checkpoint_due(5));
  EXPECT_FALSE(jobs_[0].holds());
}

TEST_F(HoldTest, AsynchronousRunsHaveNoMomentForIt) {
  Program program;
  program.asynchronous = true;
  DeviceJob job;
  job.program = std::make_shared<const Program>(program);
  checkpoints_->AddTo(job);
  EXPECT_FALSE(job.checkpoint_due);
}

}  // namespace
}  // namespace stagewright::testing
