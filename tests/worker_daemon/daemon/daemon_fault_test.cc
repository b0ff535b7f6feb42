// A worker whose accelerator comes to be of no use to its process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/wire/graph_proto.h"
#include "tests/support/graph_builder.h"
#include "tests/worker_daemon/daemon/fake_planner.h"
#include "tests/worker_daemon/daemon/no_metrics.h"
#include "tests/worker_daemon/daemon/small_job.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/simulated_accelerator.h"
#include "worker_daemon/daemon/daemon.h"
#include "worker_daemon/daemon/worker_run.h"

namespace stagewright::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int32_t kIllegalAddress = 700;

class DaemonFaultTest : public ::testing::Test {
 protected:
  DaemonFaultTest() {
    DaemonOptions options;
    options.planner = planner_.address();
    options.name = "w";
    options.on_fault = [this] { told_.Notify(); };
    Offer offer;
    offer.devices = {{.name = "cuda0", .torch_device = "simulated:0", .memory = kGiB}};
    offer.kinds.emplace_back().set_name("simulated");
    offer.kind_of = {0};
    auto daemon = Daemon::Start(options, offer);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    if (daemon.ok()) daemon_ = *std::move(daemon);
  }
  ~DaemonFaultTest() override { Break(0, 0); }

  // Trains until it is as `done` wants.
  template <typename F>
  v1::ConnectRequest Train(F&& done) {
    const std::string stem = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    v1::ConnectResponse message;
    *message.mutable_prepare() = SmallJob(stem, {"cuda0"});
    message.mutable_prepare()->mutable_spec()->set_data_path(TempPath(stem + "_data.safetensors"));
    message.mutable_prepare()->clear_evaluation_program();
    WriteTensors(message.prepare().spec().data_path(), {{"x", Random({8, 3}, 2)}});
    planner_.Send(message);
    for (const bool starts : {false, true}) {
      message.Clear();
      if (starts) {
        message.mutable_start()->set_job("jobs/1");
        message.mutable_start()->set_generation(3);
      } else {
        message.mutable_connect_peers()->set_job("jobs/1");
        message.mutable_connect_peers()->set_generation(3);
      }
      planner_.Send(message);
    }
    return planner_.Await(done);
  }

  FakePlanner planner_;
  absl::Notification told_;
  std::unique_ptr<Daemon> daemon_;  // Goes first.
};

TEST_F(DaemonFaultTest, TellsOfTheFailureAndThenLeaves) {
  Break(0, kIllegalAddress);
  const v1::ConnectRequest first =
      Train([](const v1::ConnectRequest& r) { return r.has_failed() || r.has_leave(); });
  ASSERT_TRUE(first.has_failed()) << first.ShortDebugString();
  // As the loss of a worker is told: the job may go on elsewhere.
  EXPECT_EQ(first.failed().code(), static_cast<int32_t>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(first.failed().message(), AllOf(HasSubstr("cuda0: simulated:0: simulated error 700"),
                                              HasSubstr("the worker ends")));
  const v1::ConnectRequest leave =
      planner_.Await([](const v1::ConnectRequest& r) { return r.has_leave(); });
  EXPECT_THAT(leave.leave().reason(),
              AllOf(HasSubstr("cuda0: simulated:0"), Not(HasSubstr("advice"))));
  ASSERT_TRUE(told_.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_THAT(daemon_->Fault().message(), HasSubstr("simulated error 700"));
  EXPECT_FALSE(daemon_->MayLeave());
  v1::ConnectResponse message;
  message.mutable_may_leave();
  planner_.Send(message);
  for (int i = 0; i < 1000 && !daemon_->MayLeave(); ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_TRUE(daemon_->MayLeave());
}

TEST_F(DaemonFaultTest, AnErrorThatPassesFailsTheJobAlone) {
  constexpr int32_t kInvalidConfiguration = 9;
  Break(0, kInvalidConfiguration);
  const v1::ConnectRequest failed =
      Train([](const v1::ConnectRequest& r) { return r.has_failed(); });
  EXPECT_EQ(failed.failed().code(), static_cast<int32_t>(absl::StatusCode::kInternal));
  EXPECT_THAT(failed.failed().message(), HasSubstr("simulated error 9"));
  v1::ConnectResponse release;
  release.mutable_abort()->set_job("jobs/1");
  release.mutable_abort()->set_generation(3);
  planner_.Send(release);
  planner_.Await([](const v1::ConnectRequest& r) { return r.has_run_ended(); });
  EXPECT_TRUE(daemon_->Fault().ok()) << daemon_->Fault();
  Break(0, 0);
  const v1::ConnectRequest finished =
      Train([](const v1::ConnectRequest& r) { return r.has_finished() || r.has_failed(); });
  EXPECT_TRUE(finished.has_finished()) << finished.ShortDebugString();
}

TEST_F(DaemonFaultTest, AMeasurementFindsItToo) {
  Break(0, kIllegalAddress);
  GraphBuilder builder("layer");
  const Argument x = builder.Feature("x", {8});
  builder.Loss(builder.Linear(x, 8, 9), {9});
  v1::ConnectResponse message;
  v1::ProfileOperators& asked = *message.mutable_profile_operators();
  asked.set_request(1);
  *asked.mutable_graph() = ToProto(builder.Build());
  asked.set_device_name("cuda0");
  asked.set_precision(v1::PRECISION_GRAPH);
  asked.set_most_samples(4);
  planner_.Send(message);
  const v1::ConnectRequest profiled =
      planner_.Await([](const v1::ConnectRequest& r) { return r.has_operators_profiled(); });
  EXPECT_NE(profiled.operators_profiled().code(), 0);
  planner_.Await([](const v1::ConnectRequest& r) { return r.has_leave(); });
}

// Keeps the thread of cpu0 after its first step.
class HangingMetrics : public NoMetrics {
 public:
  void SetMeasuredMemory(const std::string&, const std::string& device,
                         const MemoryFigures&) override {
    if (device == "cpu0") released.WaitForNotification();
  }
  absl::Notification released;
};

TEST(WorkerRunFaultTest, IsToldWhileTheThreadOfAnotherDeviceHangs) {
  v1::Prepare prepare = SmallJob("HangsBesideAFault", {"cpu0", "cpu1"});
  prepare.mutable_spec()->set_data_path(TempPath("HangsBesideAFault_data.safetensors"));
  prepare.mutable_spec()->set_step_timeout_ns(absl::ToInt64Nanoseconds(absl::Seconds(2)));
  prepare.clear_evaluation_program();
  WriteTensors(prepare.spec().data_path(), {{"x", Random({8, 3}, 2)}});
  // Trains on the processor: an accelerator has no transport here.
  std::atomic<bool> prepared = false;
  const auto find = [&](const std::string& name) -> std::optional<OfferedDevice> {
    return OfferedDevice{name, prepared && name == "cpu1" ? "simulated:0" : "cpu", kGiB};
  };
  absl::Mutex mutex;
  v1::ConnectRequest last, before_fault;
  HangingMetrics metrics;
  WorkerRun run(
      prepare, find,
      [&](v1::ConnectRequest report) {
        absl::MutexLock lock(&mutex);
        if (!report.has_progress()) last = std::move(report);
      },
      &metrics, {},
      [&](const absl::Status&) {
        absl::MutexLock lock(&mutex);
        before_fault = last;
      });
  const auto await = [&](const auto& done) {
    absl::MutexLock lock(&mutex);
    return mutex.AwaitWithTimeout(absl::Condition(&done), absl::Seconds(30));
  };
  ASSERT_TRUE(await([&] { return last.has_prepared(); })) << last.ShortDebugString();
  prepared = true;
  Break(0, kIllegalAddress);
  v1::ConnectPeers peers;
  *peers.mutable_addresses() = last.prepared().addresses();
  run.Connect(peers);
  EXPECT_TRUE(await([&] { return last.has_connected(); })) << last.ShortDebugString();
  run.Start();
  EXPECT_TRUE(await([&] { return before_fault.has_failed(); }));
  EXPECT_THAT(before_fault.failed().message(), HasSubstr("cpu1: simulated:0"));
  metrics.released.Notify();
  Break(0, 0);
}

}  // namespace
}  // namespace stagewright::testing
