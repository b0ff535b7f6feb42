// One run on one device, without a planner: what it refuses, and what it leaves on the disk.
#include "worker_daemon/daemon/worker_run.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/clock.h"
#include "common/artifacts/artifacts.h"
#include "common/artifacts/content_hash.h"
#include "common/artifacts/store/folder_store.h"
#include "tests/worker_daemon/daemon/no_metrics.h"
#include "tests/worker_daemon/daemon/small_job.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/checkpoint/output_owner.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A store that refuses some times, and then does not answer.
class SilentStore : public FolderStore {
 public:
  explicit SilentStore(int failures) : FolderStore("silence"), failures_(failures) {}
  absl::StatusOr<std::string> Read(const std::string&, size_t,
                                   const GivenUp& given_up) const override {
    if (reads_++ < failures_) return absl::PermissionDeniedError("it refuses");
    const absl::Time patience = absl::Now() + absl::Seconds(20);
    while (absl::Now() < patience) {
      if (given_up && given_up()) return absl::CancelledError("given up");
      absl::SleepFor(absl::Milliseconds(1));
    }
    return absl::UnavailableError("it does not answer");
  }
  int reads() const { return reads_; }

 private:
  const int failures_;
  mutable std::atomic<int> reads_ = 0;
};

class AbsentStore : public FolderStore {
 public:
  AbsentStore() : FolderStore("absence") {}
  absl::StatusOr<std::string> Read(const std::string&, size_t, const GivenUp&) const override {
    return absl::UnavailableError("it is away");
  }
};

class CountedCheckpoints : public NoMetrics {
 public:
  void ObserveCheckpoint(const std::string&, absl::Duration) override { ++count; }
  std::atomic<int> count = 0;
};

// While it lives, files of the process grow no larger.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{std::min(bytes, before_.rlim_max), before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*const handler_)(int);
  rlimit before_{};
};

// An address of device 1 in another process, where nobody is any more.
std::string AddressOfNobody() {
  const auto address_of = [](const TransportIdentity& identity) {
    RoutingOptions options;
    options.ucx.tls = "tcp,self";  // Shared memory would say nothing of its end.
    const auto gone = RoutingTransport::Create(identity, std::move(options));
    return gone.ok() ? (*gone)->Address() : std::string(gone.status().message());
  };
  const auto take = [](absl::string_view* bytes) {
    std::string part;
    EXPECT_TRUE(ConsumeString(bytes, &part));
    return part;
  };
  const auto pack = [](TransportAddress address, const std::vector<std::string>& parts) {
    address.payload.clear();
    for (const std::string& part : parts) AppendString(part, &address.payload);
    return EncodeAddress(address);
  };
  const TransportAddress routing = *DecodeAddress("routing", address_of({"jobs/1", 3, 1}));
  absl::string_view payload = routing.payload;
  take(&payload);  // For those of this process.
  const TransportAddress ucx = *DecodeAddress("ucx", take(&payload));
  payload = ucx.payload;
  return pack(routing, {"", pack(ucx, {take(&payload), "", ""}), ""});
}

class WorkerRunTest : public ::testing::Test {
 protected:
  WorkerRunTest() {
    const std::string stem = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    data_ = Random({8, 3}, 2);
    data_path_ = TempPath(stem + "_data.safetensors");
    evaluation_path_ = TempPath(stem + "_evaluation.safetensors");
    prepare_ = SmallJob(stem, {"cpu0"});
    prepare_.mutable_spec()->set_data_path(data_path_);
    prepare_.mutable_spec()->set_evaluation_data_path(evaluation_path_);
    std::filesystem::remove_all(prepare_.spec().output_path());  // As another repetition left it.
  }

  // Runs until it has finished or failed, merges where a test wants that, and then ends the run.
  v1::ConnectRequest RunToTheEnd() {
    WriteTensors(data_path_, {{"x", data_}});
    at::Tensor evaluation = Random({8, 3}, 4);
    if (bad_evaluation_) evaluation[5][1] = std::nan("");
    WriteTensors(evaluation_path_, {{"x", evaluation}});
    const FileLimit limit(most_in_a_file_);
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
          ended = report.has_finished() || report.has_failed() || report.has_merged();
          if (report.has_progress()) {
            progress_.push_back(report.progress());
            if (on_progress_) on_progress_();
          }
          if (report.has_steps_so_far()) steps_so_far_ = report.steps_so_far();
          if (report.has_shard_written()) ++shares_told_;
          last = std::move(report);
        },
        &metrics_, places_);
    const auto await_end = [&] {
      absl::MutexLock lock(&mutex);
      EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&ended), absl::Seconds(30)));
      ended = false;
      return last;
    };
    run.Connect(peers_);
    run.Start();
    v1::ConnectRequest trained = await_end();
    if (connects_again_) run.RepeatLastReport();
    if (!merge_.has_value()) return trained;
    *merge_->mutable_shards() = trained.finished().shards();
    run.Merge(*merge_);
    return await_end();
  }

  std::string Failure() { return RunToTheEnd().failed().message(); }
  std::filesystem::path Shards() const {
    return prepare_.spec().output_path() + "/shards-jobs-1-a1-3";
  }

  v1::Prepare prepare_;
  at::Tensor data_;
  std::string data_path_, evaluation_path_;
  std::vector<v1::Progress> progress_;
  v1::StepsSoFar steps_so_far_;
  bool bad_evaluation_ = false;
  bool connects_again_ = false;  // Once it has finished.
  int shares_told_ = 0;          // Shares of checkpoints.
  CountedCheckpoints metrics_;
  Places places_;
  std::optional<v1::Merge> merge_;  // Told once it has finished, with its shards.
  v1::ConnectPeers peers_;
  std::function<void()> on_progress_;  // Before the device goes on.
  rlim_t most_in_a_file_ = RLIM_INFINITY;
  Bytes memory_ = kGiB;
};

TEST_F(WorkerRunTest, ThePeersThatItDidNotReachAreTold) {
  prepare_ = SmallJob("Unreached", {"cpu0", "cpu1"});
  prepare_.mutable_spec()->set_data_path(data_path_);
  prepare_.mutable_spec()->set_evaluation_data_path(evaluation_path_);
  prepare_.mutable_devices()->RemoveLast();
  prepare_.mutable_device_names()->RemoveLast();
  v1::DeviceAddress* peer = peers_.add_addresses();
  peer->set_device(1);
  peer->set_address(AddressOfNobody());
  const v1::Failed failed = RunToTheEnd().failed();
  EXPECT_EQ(failed.code(), static_cast<int32_t>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(failed.unreached_devices(), ::testing::ElementsAre(1)) << failed.message();
  EXPECT_FALSE(failed.storage());
}

TEST_F(WorkerRunTest, WhatADiskDoesNotTakeIsToldFromWhatNeverWorks) {
  most_in_a_file_ = 64;
  v1::Failed failed = RunToTheEnd().failed();
  EXPECT_EQ(failed.code(), static_cast<int32_t>(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(failed.storage()) << failed.message();
  EXPECT_THAT(failed.message(), HasSubstr("stagewright-job.json"));
  EXPECT_EQ(failed.unreached_devices_size(), 0);
  most_in_a_file_ = RLIM_INFINITY;
  prepare_.mutable_spec()->set_output_path(data_path_ + "/out");
  failed = RunToTheEnd().failed();
  EXPECT_EQ(failed.code(), static_cast<int32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(failed.storage()) << failed.message();
}

TEST_F(WorkerRunTest, AStoreThatIsAwayMayComeBack) {
  prepare_.mutable_spec()->set_weights_path("sha256:" + ContentHash(""));
  places_.artifacts = Artifacts(std::make_shared<AbsentStore>(), TempPath("parts"));
  const v1::Failed failed = RunToTheEnd().failed();
  EXPECT_EQ(failed.code(), static_cast<int32_t>(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(failed.storage());
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("spec.weights_path"), HasSubstr("it is away")));
}

TEST_F(WorkerRunTest, WhatEarlierRunsLeftUnfinishedGoesBeforeTraining) {
  const std::string root = prepare_.spec().output_path() + "/checkpoints";
  for (const char* step : {"/step-0000000020", "/step-0000000040"}) {
    std::filesystem::create_directories(root + step);
    std::ofstream(root + step + "/model-00000.safetensors") << "a share of a run that died";
  }
  peers_.set_unwritten_step(40);
  EXPECT_TRUE(RunToTheEnd().has_finished());
  EXPECT_FALSE(std::filesystem::exists(root + "/step-0000000020"));
  EXPECT_TRUE(std::filesystem::exists(root + "/step-0000000040/model-00000.safetensors"));
}

TEST_F(WorkerRunTest, ShardsThatEarlierGenerationsLeftGoBeforeTraining) {
  const std::string output = prepare_.spec().output_path();
  const auto leave = [&](const std::string& whose) {
    std::filesystem::create_directories(output + "/shards-" + whose);
    std::ofstream(output + "/shards-" + whose + "/shard-00001.safetensors") << "trained";
  };
  const auto is_there = [&](const std::string& whose) {
    return std::filesystem::exists(output + "/shards-" + whose + "/shard-00001.safetensors");
  };
  ASSERT_TRUE(RunToTheEnd().has_finished());
  prepare_.set_generation(4);
  for (const char* whose : {"jobs-1-a1-3", "jobs-1-a1-5", "jobs-2-b2-1"}) leave(whose);
  EXPECT_TRUE(RunToTheEnd().has_finished());
  EXPECT_FALSE(std::filesystem::exists(Shards())) << "those of generation 3";
  EXPECT_TRUE(is_there("jobs-1-a1-5"));
  EXPECT_TRUE(is_there("jobs-2-b2-1"));
  prepare_.set_run("jobs-3-c3");
  prepare_.mutable_spec()->set_overwrite(true);
  EXPECT_TRUE(RunToTheEnd().has_finished());
  EXPECT_FALSE(is_there("jobs-1-a1-5"));
  EXPECT_FALSE(is_there("jobs-2-b2-1"));
}

TEST_F(WorkerRunTest, AMergeRemovesWhatIsLeftOfEarlierGenerationsAndOfCheckpoints) {
  const std::string output = prepare_.spec().output_path();
  const std::string shards = output + "/shards-jobs-1-a1-2", step = output + "/checkpoints/step-1";
  on_progress_ = [&] {  // After the run has begun.
    for (const std::string& directory : {shards, step})
      std::filesystem::create_directories(directory);
    std::ofstream(shards + "/shard-00001.safetensors") << "of a worker that was not heard of";
    std::ofstream(step + "/model-00001.safetensors") << "of a checkpoint that failed";
  };
  merge_.emplace().set_job("jobs/1");
  merge_->set_generation(3);
  merge_->set_checkpoint_path(output + "/model.safetensors");
  ASSERT_TRUE(RunToTheEnd().has_merged());
  EXPECT_FALSE(std::filesystem::exists(shards));
  EXPECT_FALSE(std::filesystem::exists(step));
}

TEST_F(WorkerRunTest, ShardsOfARunThatHasLostTheDirectoryAreNotWritten) {
  on_progress_ = [&] {
    EXPECT_EQ(TakeOutput(prepare_.spec().output_path(), {"jobs-1-a1", "jobs/1", "", 4},
                         OthersResults::kRefused),
              absl::OkStatus());
  };
  EXPECT_THAT(Failure(), HasSubstr("is generation 4's of this job"));
  EXPECT_FALSE(std::filesystem::exists(Shards()));
}

TEST_F(WorkerRunTest, ShardsAreWrittenThoughTheirEmptyDirectoryWasRemoved) {
  on_progress_ = [&] { std::filesystem::remove(Shards()); };
  EXPECT_TRUE(RunToTheEnd().has_finished());
}

TEST_F(WorkerRunTest, ARunThatEndsWellLeavesItsShardsToTheMerge) {
  const v1::ConnectRequest last = RunToTheEnd();
  ASSERT_TRUE(last.has_finished()) << last.ShortDebugString();
  ASSERT_EQ(last.finished().shards_size(), 1);
  EXPECT_TRUE(std::filesystem::exists(last.finished().shards(0)));
  EXPECT_EQ(last.finished().evaluated_samples(), 8);
}

TEST_F(WorkerRunTest, AMergeRemovesTheShardsAndNothingElse) {
  merge_.emplace().set_job("jobs/1");
  merge_->set_generation(3);
  merge_->set_checkpoint_path(prepare_.spec().output_path() + "/model.safetensors");
  ASSERT_TRUE(RunToTheEnd().has_merged());
  EXPECT_TRUE(std::filesystem::exists(merge_->checkpoint_path()));
  EXPECT_FALSE(std::filesystem::exists(Shards()));

  std::filesystem::create_directories(Shards());
  std::ofstream(Shards() / "notes.txt") << "ours";
  ASSERT_TRUE(RunToTheEnd().has_merged());
  EXPECT_TRUE(std::filesystem::exists(Shards() / "notes.txt"));
  EXPECT_FALSE(std::filesystem::exists(Shards() / "shard-00000.safetensors"));
}

TEST_F(WorkerRunTest, AModelOfAnotherJobIsNotOverwritten) {
  merge_.emplace().set_job("jobs/1");
  merge_->set_generation(3);
  merge_->set_checkpoint_path(prepare_.spec().output_path() + "/model.safetensors");
  ASSERT_TRUE(RunToTheEnd().has_merged());
  prepare_.set_run("jobs-1-b2");
  const std::optional<v1::Merge> merge = std::exchange(merge_, std::nullopt);
  EXPECT_THAT(Failure(),
              AllOf(HasSubstr(prepare_.spec().output_path()), HasSubstr("jobs/1, run jobs-1-a1")));
  prepare_.mutable_spec()->set_overwrite(true);
  merge_ = merge;
  EXPECT_TRUE(RunToTheEnd().has_merged());
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

TEST_F(WorkerRunTest, ACheckpointThatIsToldAgainIsObservedOnce) {
  prepare_.mutable_spec()->mutable_checkpoints()->set_every_steps(1);
  prepare_.mutable_spec()->set_steps(4);
  connects_again_ = true;
  ASSERT_TRUE(RunToTheEnd().has_finished());
  EXPECT_EQ(shares_told_, 3 + 2);  // The two newest once more.
  EXPECT_EQ(metrics_.count, 3);
}

TEST_F(WorkerRunTest, AnEvaluationThatFailsLosesNothing) {
  bad_evaluation_ = true;
  EXPECT_THAT(Failure(), AllOf(HasSubstr("device cpu0"), HasSubstr("evaluation"),
                               HasSubstr("the loss is nan"), HasSubstr("shards-jobs-1-a1-3")));
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

TEST_F(WorkerRunTest, ShardsThatAreLinkedElsewhereAreNotWritten) {
  const std::filesystem::path output = prepare_.spec().output_path(), elsewhere = TempPath("else");
  std::filesystem::remove_all(elsewhere);
  for (const auto& directory : {output, elsewhere}) std::filesystem::create_directories(directory);
  std::filesystem::create_directory_symlink(elsewhere, Shards());
  places_.roots.output = output;
  const v1::ConnectRequest last = RunToTheEnd();
  EXPECT_EQ(last.failed().code(), static_cast<int32_t>(absl::StatusCode::kPermissionDenied));
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
}

// In the first place that asks it, and where the failure of that is looked into.
TEST_F(WorkerRunTest, ARunThatIsAbortedWaitsForNoStore) {
  WriteTensors(data_path_, {{"x", data_}});
  prepare_.mutable_spec()->set_weights_path("sha256:" + ContentHash(""));
  prepare_.mutable_spec()->set_evaluation_data_path(data_path_);
  for (const int failures : {0, 1}) {
    const auto store = std::make_shared<SilentStore>(failures);
    const absl::Time deadline = absl::Now() + absl::Seconds(15);
    {
      WorkerRun run(
          prepare_,
          [](const std::string& name) {
            return OfferedDevice{name, "cpu", kGiB};
          },
          [](const v1::ConnectRequest& report) { EXPECT_FALSE(report.has_failed()); }, nullptr,
          {{}, Artifacts(store, TempPath("parts"))});
      while (store->reads() <= failures && absl::Now() < deadline)
        absl::SleepFor(absl::Milliseconds(1));
      run.Abort("nobody wants it any more");
    }
    EXPECT_LT(absl::Now(), deadline) << failures;
    EXPECT_EQ(store->reads(), failures + 1);
  }
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
