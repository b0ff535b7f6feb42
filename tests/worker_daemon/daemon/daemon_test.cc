// A worker with two devices and a planner that says what the test says: measurements of operators
// beside jobs.
#include "worker_daemon/daemon/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "common/artifacts/content_hash.h"
#include "common/topology/presets.h"
#include "common/wire/graph_proto.h"
#include "common/wire/topology_proto.h"
#include "tests/support/graph_builder.h"
#include "tests/worker_daemon/daemon/fake_planner.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using Report = v1::ConnectRequest;

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    DaemonOptions options;
    options.planner = planner_.address();
    options.name = "w";
    options.devices = {"cpu:2", "cpu-core", kGiB};
    auto daemon = Daemon::Start(options);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    if (daemon.ok()) daemon_ = *std::move(daemon);
  }

  // Asks for `layers` operators, no two of them alike: a few milliseconds each, at the least.
  void Profile(int64_t request, const std::string& device, int layers = 4) {
    testing::GraphBuilder builder("layers");
    Argument x = builder.Feature("x", {8});
    for (int i = 0; i < layers; ++i) x = builder.Linear(x, 8 + i, 9 + i);
    builder.Loss(x, {8 + layers});
    v1::ConnectResponse message;
    v1::ProfileOperators& asked = *message.mutable_profile_operators();
    asked.set_request(request);
    *asked.mutable_graph() = ToProto(builder.Build());
    asked.set_device_name(device);
    asked.set_precision(v1::PRECISION_GRAPH);
    asked.set_most_samples(16);
    planner_.Send(message);
  }
  void Stop(int64_t request) {
    v1::ConnectResponse message;
    message.mutable_stop_profiling()->set_request(request);
    planner_.Send(message);
  }
  // A job that cannot be prepared, on one of the devices.
  void Prepare(const std::string& device) {
    v1::ConnectResponse message;
    message.mutable_prepare()->set_job("jobs/1");
    message.mutable_prepare()->set_generation(1);
    message.mutable_prepare()->add_devices(0);
    message.mutable_prepare()->add_device_names(device);
    planner_.Send(message);
  }

  v1::OperatorsProfiled Profiled(int64_t request) {
    return planner_
        .Await([request](const Report& report) {
          return report.operators_profiled().request() == request;
        })
        .operators_profiled();
  }

  testing::FakePlanner planner_;
  std::unique_ptr<Daemon> daemon_;  // Goes first.
};

TEST_F(DaemonTest, DevicesOfANamedKindHaveItsFiguresAndUnmeasuredLinks) {
  const v1::Register registered =
      planner_.Await([](const Report& report) { return report.has_register_(); }).register_();
  ASSERT_EQ(registered.kinds_size(), 1);
  EXPECT_EQ(registered.kinds(0).SerializeAsString(),
            ToProto(*PresetDeviceKind("cpu-core")).SerializeAsString());
  EXPECT_FALSE(registered.probes_links());
}

TEST(DaemonStart, AnUnknownKindOfDevicesIsRefused) {
  DaemonOptions options;
  options.devices.kind = "cpu";
  const auto daemon = Daemon::Start(options);
  EXPECT_EQ(daemon.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(daemon.status().message(), HasSubstr("there is no device kind \"cpu\""));
}

TEST_F(DaemonTest, AJobLeavesMeasurementsOfOtherDevicesAlone) {
  Profile(1, "cpu1");
  Prepare("cpu0");
  planner_.Await([](const Report& report) { return report.has_failed(); });
  const v1::OperatorsProfiled profiled = Profiled(1);
  EXPECT_EQ(profiled.code(), 0) << profiled.message();
  EXPECT_EQ(profiled.profile().operators_size(), 5);
}

TEST_F(DaemonTest, AJobWaitsForAGraphThatTheWorkerLacks) {
  const auto introduced =
      planner_.Await([](const Report& report) { return report.has_register_(); });
  EXPECT_TRUE(introduced.register_().keeps_graphs());
  v1::Graph graph;
  graph.set_name("net");
  v1::ConnectResponse answer;
  answer.mutable_needed_graph()->set_graph(graph.SerializeAsString());
  const std::string sha256 = ContentHash(answer.needed_graph().graph());
  answer.mutable_needed_graph()->set_graph_sha256(sha256);
  v1::ConnectResponse message;
  message.mutable_prepare()->set_job("jobs/1");
  message.mutable_prepare()->add_devices(0);
  message.mutable_prepare()->add_device_names("cpu0");
  message.mutable_prepare()->set_graph_sha256(sha256);
  const auto said = [](const Report& report) {
    return report.has_graph_needed() || report.has_failed();
  };
  message.mutable_prepare()->set_generation(1);
  planner_.Send(message);
  const Report needed = planner_.Await(said);
  EXPECT_EQ(needed.graph_needed().job(), "jobs/1");
  EXPECT_EQ(needed.graph_needed().generation(), 1);
  EXPECT_EQ(needed.graph_needed().graph_sha256(), sha256);
  // What is over waits no more, and says so at once.
  v1::ConnectResponse abort;
  abort.mutable_abort()->set_job("jobs/1");
  abort.mutable_abort()->set_generation(1);
  planner_.Send(abort);
  planner_.Await([](const Report& report) { return report.run_ended().generation() == 1; });

  message.mutable_prepare()->set_generation(2);
  planner_.Send(message);
  EXPECT_EQ(planner_.Await(said).graph_needed().generation(), 2);
  planner_.Send(answer);
  EXPECT_EQ(planner_.Await(said).failed().generation(), 2);  // There is no program.
  message.mutable_prepare()->set_generation(3);
  planner_.Send(message);
  EXPECT_EQ(planner_.Await(said).failed().generation(), 3);
}

TEST_F(DaemonTest, TwoDevicesAreMeasuredAtOnce) {
  Profile(1, "cpu0");
  Profile(2, "cpu1");
  for (const int64_t request : {1, 2}) {
    const v1::OperatorsProfiled profiled = Profiled(request);
    EXPECT_EQ(profiled.code(), 0) << profiled.message();
    EXPECT_EQ(profiled.profile().operators_size(), 5);
  }
}

TEST_F(DaemonTest, StopsTheMeasurementThatIsNamed) {
  Profile(1, "cpu0", /*layers=*/60);
  Profile(2, "cpu1");
  Stop(7);
  Stop(1);
  EXPECT_EQ(Profiled(1).code(), static_cast<int32_t>(absl::StatusCode::kCancelled));
  EXPECT_EQ(Profiled(2).code(), 0);
}

TEST_F(DaemonTest, ANewMeasurementOfADeviceEndsTheOneBefore) {
  Profile(1, "cpu0", /*layers=*/60);
  Profile(2, "cpu0");
  EXPECT_EQ(Profiled(1).code(), static_cast<int32_t>(absl::StatusCode::kCancelled));
  EXPECT_EQ(Profiled(2).code(), 0);
}

TEST_F(DaemonTest, NamesADeviceThatItHasNot) {
  Profile(1, "cpu7");
  const v1::OperatorsProfiled profiled = Profiled(1);
  EXPECT_EQ(profiled.code(), static_cast<int32_t>(absl::StatusCode::kNotFound));
  EXPECT_THAT(profiled.message(), HasSubstr("cpu7"));
}

}  // namespace
}  // namespace stagewright
