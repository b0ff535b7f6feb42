// The checkpoints of a run in an output directory of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/daemon/run_checkpoints.h"

namespace stagewright::testing {

class RunCheckpointsTest : public ::testing::Test {
 protected:
  RunCheckpointsTest() {
    prepare_.set_job("jobs/1");
    prepare_.set_generation(1);
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string output = TempPath(test->name());
    std::filesystem::remove_all(output);  // What the test left when it last ran.
    prepare_.mutable_spec()->set_output_path(output);
    prepare_.set_run("jobs-1-a1");
    prepare_.mutable_spec()->mutable_checkpoints()->set_every_steps(1);
    GraphMaker make;  // Without parameters, so that a checkpoint is whole without files.
    const Argument x = In(make.AddInput("x", {-1, 2}));
    graph_ = std::make_shared<const Graph>(
        make.Finish(make.AddNode("aten.mean.default", {x}, {Meta({})})));
  }

  std::string Directory(int64_t step) const {
    return CheckpointDirectory(CheckpointRoot(prepare_.spec().output_path()), step);
  }

  std::unique_ptr<RunCheckpoints> Make(const v1::Prepare& prepare) {
    return std::make_unique<RunCheckpoints>(prepare, [this](const v1::ConnectRequest& message) {
      absl::MutexLock lock(&mutex_);
      steps_.push_back(message.checkpoint_written().step());
      errors_.push_back(message.checkpoint_written().error());
      threads_.insert(std::this_thread::get_id());
    });
  }
  std::unique_ptr<RunCheckpoints> Make() { return Make(prepare_); }

  // The output directory is its job's.
  std::unique_ptr<RunCheckpoints> Taken() { return Taken(prepare_); }
  std::unique_ptr<RunCheckpoints> Taken(const v1::Prepare& prepare) {
    auto checkpoints = Make(prepare);
    v1::Prepared prepared;
    EXPECT_EQ(checkpoints->Resume(&prepared), absl::OkStatus());
    EXPECT_EQ(checkpoints->TakeOutput(), absl::OkStatus());
    first_step_ = prepared.first_step();
    return checkpoints;
  }
  // As another job in the same directory, until the end of the test.
  void BecomeAnotherJob() {
    prepare_.set_job("jobs/2");
    prepare_.set_run("jobs-2-b2");
  }
  // A job that saves after these steps and then ends.
  void RunWithCheckpoints(const std::vector<int64_t>& steps) {
    const auto checkpoints = Taken();
    for (const int64_t step : steps) {
      std::filesystem::create_directories(Directory(step));
      checkpoints->Complete(Order(step, prepare_.generation()), graph_);
    }
  }
  absl::Status Refusal() {
    v1::Prepared prepared;
    return Make()->Resume(&prepared);
  }

  static v1::WriteManifest Order(int64_t step, int64_t generation = 1) {
    v1::WriteManifest order;
    order.set_job("jobs/1");
    order.set_generation(generation);
    order.set_step(step);
    return order;
  }

  v1::Prepare prepare_;
  int64_t first_step_ = 0;  // Where the last one that took the directory begins.
  std::shared_ptr<const Graph> graph_;
  absl::Mutex mutex_;
  std::vector<int64_t> steps_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> errors_ ABSL_GUARDED_BY(mutex_);
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagewright::testing
