// A worker with two devices and a planner that says what the test says: measurements of operators
// beside jobs.
#include "worker_daemon/daemon/daemon.h"

#include <gmock/gmock.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/wire/graph_proto.h"
#include "stagewright/v1/worker_service.grpc.pb.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using Report = v1::ConnectRequest;

// The planner's end of the stream.
class FakePlanner : public v1::WorkerService::Service {
 public:
  FakePlanner() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FakePlanner() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }

  grpc::Status Connect(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>* stream) override {
    {
      absl::MutexLock lock(&mutex_);
      stream_ = stream;
      v1::ConnectResponse welcome;
      welcome.mutable_registered()->set_heartbeat_interval_ns(1'000'000'000);
      stream->Write(welcome);
    }
    Report report;
    while (stream->Read(&report)) {
      absl::MutexLock lock(&mutex_);
      if (report.has_register_()) registered_ = true;
      if (!report.has_heartbeat()) reports_.push_back(report);
    }
    absl::MutexLock lock(&mutex_);
    stream_ = nullptr;
    return grpc::Status::OK;
  }

  void Send(const v1::ConnectResponse& message) {
    absl::MutexLock lock(&mutex_);
    const auto there = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return registered_ && stream_ != nullptr;
    };
    ASSERT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(60)));
    stream_->Write(message);
  }

  // The first report that the test wants, once it is there; it is then taken.
  template <typename F>
  Report Await(F&& wanted) {
    absl::MutexLock lock(&mutex_);
    auto found = reports_.end();
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      found = std::find_if(reports_.begin(), reports_.end(), wanted);
      return found != reports_.end();
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(120))) {
      ADD_FAILURE() << "the report does not come";
      return Report();
    }
    Report report = *found;
    reports_.erase(found);
    return report;
  }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  absl::Mutex mutex_;
  grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>* stream_
      ABSL_GUARDED_BY(mutex_) = nullptr;
  bool registered_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Report> reports_ ABSL_GUARDED_BY(mutex_);
};

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    DaemonOptions options;
    options.planner = planner_.address();
    options.name = "w";
    options.devices = "cpu:2";
    options.memory_per_device = kGiB;
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

  FakePlanner planner_;
  std::unique_ptr<Daemon> daemon_;  // Goes first.
};

TEST_F(DaemonTest, AJobLeavesMeasurementsOfOtherDevicesAlone) {
  Profile(1, "cpu1");
  Prepare("cpu0");
  planner_.Await([](const Report& report) { return report.has_failed(); });
  const v1::OperatorsProfiled profiled = Profiled(1);
  EXPECT_EQ(profiled.code(), 0) << profiled.message();
  EXPECT_EQ(profiled.profile().operators_size(), 5);
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
