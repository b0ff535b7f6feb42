// A planner that says what the test says, to one worker.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "stagewright/v1/worker_service.grpc.pb.h"
#include "tests/common/channel/loopback_server.h"

namespace stagewright::testing {

// The planner's end of the stream.
class FakePlanner : public v1::WorkerService::Service {
 public:
  const std::string& address() const { return server_.address(); }

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
    v1::ConnectRequest report;
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
  v1::ConnectRequest Await(F&& wanted) {
    absl::MutexLock lock(&mutex_);
    auto found = reports_.end();
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      found = std::find_if(reports_.begin(), reports_.end(), wanted);
      return found != reports_.end();
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(120))) {
      ADD_FAILURE() << "the report does not come";
      return v1::ConnectRequest();
    }
    v1::ConnectRequest report = *found;
    reports_.erase(found);
    return report;
  }

 private:
  absl::Mutex mutex_;
  grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>* stream_
      ABSL_GUARDED_BY(mutex_) = nullptr;
  bool registered_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<v1::ConnectRequest> reports_ ABSL_GUARDED_BY(mutex_);
  LoopbackServer server_{this};
};

}  // namespace stagewright::testing
