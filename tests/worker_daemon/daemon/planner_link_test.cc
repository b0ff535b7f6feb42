#include "worker_daemon/daemon/planner_link.h"

#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace stagewright {
namespace {

// Refuses the first streams, welcomes the worker on the next one and breaks that at once.
class FitfulPlanner : public v1::WorkerService::Service {
 public:
  explicit FitfulPlanner(size_t refusals) : refusals_(refusals) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FitfulPlanner() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }

  grpc::Status Connect(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>* stream) override {
    absl::MutexLock lock(&mutex_);
    came_.push_back(absl::Now());
    if (came_.size() <= refusals_) return {grpc::StatusCode::UNAVAILABLE, "not now"};
    v1::ConnectResponse welcome;
    welcome.mutable_registered()->set_heartbeat_interval_ns(1'000'000'000);
    stream->Write(welcome);
    return grpc::Status::OK;
  }

  // When the streams came that were opened, once there are so many.
  std::vector<absl::Time> Await(size_t streams) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return came_.size() >= streams;
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(60)));
    return came_;
  }

 private:
  const size_t refusals_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  absl::Mutex mutex_;
  std::vector<absl::Time> came_ ABSL_GUARDED_BY(mutex_);
};

TEST(PlannerLinkTest, APlannerThatTookTheWorkerIsTriedAgainSoon) {
  constexpr size_t kRefusals = 5;
  FitfulPlanner planner(kRefusals);
  Outbox outbox;
  auto link = PlannerLink::Open(
      planner.address(), ChannelSecurity(), &outbox,
      {[] { return v1::Register(); }, [](const v1::ConnectResponse&) {}, [](bool) {}});
  ASSERT_TRUE(link.ok()) << link.status();
  const std::vector<absl::Time> came = planner.Await(kRefusals + 2);
  ASSERT_GE(came.size(), kRefusals + 2);
  // The pauses grow with each refusal, to more than three seconds, and begin anew.
  EXPECT_GT(came[kRefusals] - came[kRefusals - 1], absl::Seconds(3));
  EXPECT_LT(came[kRefusals + 1] - came[kRefusals], absl::Seconds(3));
}

}  // namespace
}  // namespace stagewright
