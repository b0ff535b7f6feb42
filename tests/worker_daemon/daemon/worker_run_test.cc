// One run on one device, without a planner: what it refuses, and what it leaves on the disk.
#include "worker_daemon/daemon/worker_run.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "common/wire/graph_proto.h"
#include "common/wire/strategy_proto.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class WorkerRunTest : public ::testing::Test {
 protected:
  WorkerRunTest() {
    GraphMaker make;
    const int x = make.AddInput("x", {-1, 3});
    const int linear = make.AddLinear("linear", In(x), 3, 2);
    const int loss = make.AddNode("aten.mean.default", {Value(linear)}, {Meta({})});
    const Graph graph = make.Finish(loss);
    std::mt19937_64 random(1);
    const auto programs =
        LowerBoth(graph, ForceStrategy(graph, {.mini_batch = 4, .micro_batches = 2}, random));
    EXPECT_TRUE(programs.ok()) << programs.status();
    const std::string stem = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    data_ = Random({8, 3}, 2);
    data_path_ = TempPath(stem + "_data.safetensors");
    evaluation_path_ = TempPath(stem + "_evaluation.safetensors");
    prepare_.set_job("jobs/1");
    prepare_.set_generation(3);
    v1::JobSpec* spec = prepare_.mutable_spec();
    *spec->mutable_graph() = ToProto(graph);
    spec->set_weights_path(WriteWeights(graph, stem + "_weights.safetensors"));
    spec->set_data_path(data_path_);
    spec->set_evaluation_data_path(evaluation_path_);
    spec->set_output_path(TempPath(stem + "_out"));
    spec->set_mini_batch(4);
    spec->set_steps(2);
    spec->mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD);
    spec->mutable_optimizer()->set_learning_rate(0.1);
    *prepare_.mutable_program() = ToProto(*programs->training);
    *prepare_.mutable_evaluation_program() = ToProto(*programs->evaluation);
    prepare_.add_devices(0);
    prepare_.add_device_names("cpu0");
  }

  // Runs until it has finished or failed, and then ends the run.
  v1::ConnectRequest RunToTheEnd() {
    WriteTensors(data_path_, {{"x", data_}});
    at::Tensor evaluation = Random({8, 3}, 4);
    if (bad_evaluation_) evaluation[5][1] = std::nan("");
    WriteTensors(evaluation_path_, {{"x", evaluation}});
    absl::Mutex mutex;
    v1::ConnectRequest last;
    bool ended = false;
    WorkerRun run(
        prepare_,
        [this](const std::string& name) -> std::optional<OfferedDevice> {
          if (name != "cpu0") return std::nullopt;
          return OfferedDevice{name, "cpu", memory_};
        },
        [&](v1::ConnectRequest report) {
          absl::MutexLock lock(&mutex);
          ended = report.has_finished() || report.has_failed();
          if (report.has_progress()) progress_.push_back(report.progress());
          if (report.has_steps_so_far()) steps_so_far_ = report.steps_so_far();
          last = std::move(report);
        },
        nullptr);
    run.Connect({});
    run.Start();
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&ended), absl::Seconds(30)));
    return last;
  }

  std::string Failure() { return RunToTheEnd().failed().message(); }
  std::filesystem::path Shards() const { return prepare_.spec().output_path() + "/shards-3"; }

  v1::Prepare prepare_;
  at::Tensor data_;
  std::string data_path_, evaluation_path_;
  std::vector<v1::Progress> progress_;
  v1::StepsSoFar steps_so_far_;
  bool bad_evaluation_ = false;
  Bytes memory_ = kGiB;
};

TEST_F(WorkerRunTest, ARunThatEndsWellLeavesItsShardsToTheMerge) {
  const v1::ConnectRequest last = RunToTheEnd();
  ASSERT_TRUE(last.has_finished()) << last.ShortDebugString();
  ASSERT_EQ(last.finished().shards_size(), 1);
  EXPECT_TRUE(std::filesystem::exists(last.finished().shards(0)));
  EXPECT_EQ(last.finished().evaluated_samples(), 8);
}

TEST_F(WorkerRunTest, TellsAllStepsOnceMoreBeforeItHasFinished) {
  v1::LearningRateSchedule* schedule =
      prepare_.mutable_spec()->mutable_optimizer()->mutable_schedule();
  schedule->set_decay(v1::LEARNING_RATE_DECAY_LINEAR);
  prepare_.mutable_spec()->set_steps(4);
  ASSERT_TRUE(RunToTheEnd().has_finished());
  ASSERT_EQ(progress_.size(), 4u);
  EXPECT_EQ(steps_so_far_.job(), "jobs/1");
  EXPECT_EQ(steps_so_far_.generation(), 3);
  ASSERT_EQ(steps_so_far_.devices_size(), 1);
  ASSERT_EQ(steps_so_far_.devices(0).steps_size(), 4);
  for (int i = 0; i < 4; ++i) {
    const v1::JobStep& step = steps_so_far_.devices(0).steps(i);
    const v1::DeviceProgress& told = progress_[i].devices(0);
    EXPECT_EQ(step.step(), i + 1);
    EXPECT_EQ(step.loss(), told.loss());
    EXPECT_EQ(step.step_ns(), told.step_ns());
    EXPECT_EQ(step.learning_rate(), told.learning_rate());
    EXPECT_DOUBLE_EQ(step.learning_rate(), 0.1 * (1 - i / 4.0));
  }
}

TEST_F(WorkerRunTest, AnEvaluationThatFailsLosesNothing) {
  bad_evaluation_ = true;
  EXPECT_THAT(Failure(), AllOf(HasSubstr("device cpu0"), HasSubstr("evaluation"),
                               HasSubstr("the loss is nan"), HasSubstr("shards-3")));
  EXPECT_TRUE(std::filesystem::exists(Shards() / "shard-00000.safetensors"));
}

TEST_F(WorkerRunTest, TrainingThatFailsLeavesNothingBehind) {
  data_.fill_(std::nan(""));
  EXPECT_THAT(Failure(), HasSubstr("the loss is nan"));
  EXPECT_FALSE(std::filesystem::exists(Shards()));
}

TEST_F(WorkerRunTest, ProgramsThatCouldBreakTheWorkerAreRefused) {
  const v1::Program good = prepare_.program();
  prepare_.mutable_program()->mutable_stages(0)->add_nodes(99);
  EXPECT_THAT(Failure(), HasSubstr("prepare.program: stages[0]: node 99 is not in the graph"));
  *prepare_.mutable_program() = good;
  prepare_.mutable_evaluation_program()->mutable_stages(0)->add_nodes(-7);
  EXPECT_THAT(Failure(), HasSubstr("prepare.evaluation_program: stages[0]: node -7"));
  *prepare_.mutable_evaluation_program() = good;
  prepare_.mutable_program()->mutable_devices(0)->mutable_body(0)->add_after(1000);
  EXPECT_THAT(Failure(), HasSubstr("it waits for action 1000, which does not exist"));
  *prepare_.mutable_program() = good;
  prepare_.mutable_spec()->set_mini_batch(0);
  EXPECT_THAT(Failure(), HasSubstr("prepare.program.mini_batch is 4, the spec's is 0"));
}

TEST_F(WorkerRunTest, ADeviceThatIsTooSmallOrUnknownIsNamed) {
  memory_ = 1;
  EXPECT_THAT(Failure(), HasSubstr("device cpu0: its program needs"));
  memory_ = kGiB;
  prepare_.set_device_names(0, "abacus");
  EXPECT_THAT(Failure(), HasSubstr("this worker has no device abacus"));
}

TEST_F(WorkerRunTest, MomentumCountsOnlyWhereTheOptimizerHasIt) {
  const auto trained = [&] {
    const v1::ConnectRequest last = RunToTheEnd();
    EXPECT_TRUE(last.has_finished()) << last.ShortDebugString();
    return ReadTensors(last.finished().shards(0))->at("linear.weight");
  };
  const at::Tensor plain = trained();
  prepare_.mutable_spec()->mutable_optimizer()->set_momentum(0.9);
  EXPECT_TRUE(at::equal(plain, trained()));
  prepare_.mutable_spec()->mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD_MOMENTUM);
  EXPECT_FALSE(at::equal(plain, trained()));
}

}  // namespace
}  // namespace stagewright::testing
