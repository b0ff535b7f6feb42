#include "worker_daemon/daemon/planner_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/log/log.h"
#include "tests/common/channel/loopback_server.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Refuses the first streams, welcomes the worker on the next one and breaks that at once.
class FitfulPlanner : public v1::WorkerService::Service {
 public:
  explicit FitfulPlanner(size_t refusals) : refusals_(refusals) {}

  const std::string& address() const { return server_.address(); }

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
  absl::Mutex mutex_;
  std::vector<absl::Time> came_ ABSL_GUARDED_BY(mutex_);
  testing::LoopbackServer server_{this};
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

// Welcomes the worker, and breaks each stream as soon as lines of a log have come with it.
class BreakingPlanner : public v1::WorkerService::Service {
 public:
  const std::string& address() const { return server_.address(); }

  grpc::Status Connect(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>* stream) override {
    v1::ConnectResponse welcome;
    welcome.mutable_registered()->set_heartbeat_interval_ns(1'000'000'000);
    welcome.mutable_registered()->set_numbers_log_lines(true);
    stream->Write(welcome);
    v1::ConnectRequest message;
    while (stream->Read(&message)) {
      if (!message.has_log_lines()) continue;
      absl::MutexLock lock(&mutex_);
      came_.push_back(message.log_lines());
      break;
    }
    return grpc::Status::OK;
  }

  // Lines as they came with each stream, once so many have.
  std::vector<v1::LogLines> Await(size_t streams) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return came_.size() >= streams;
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(60)));
    return came_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<v1::LogLines> came_ ABSL_GUARDED_BY(mutex_);
  testing::LoopbackServer server_{this};
};

TEST(PlannerLinkTest, LinesThatMayBeLostWithAStreamGoWithTheNextOne) {
  BreakingPlanner planner;
  Outbox outbox;
  outbox.Tell(
      {absl::Now(), LogLevel::kInfo, "", "the cause", {{"job", "jobs/1"}, {"generation", 1}}});
  auto link = PlannerLink::Open(
      planner.address(), ChannelSecurity(), &outbox,
      {[] { return v1::Register(); }, [](const v1::ConnectResponse&) {}, [](bool) {}});
  ASSERT_TRUE(link.ok()) << link.status();
  const std::vector<v1::LogLines> came = planner.Await(2);
  ASSERT_GE(came.size(), 2u);
  for (const v1::LogLines& lines : came) {
    ASSERT_EQ(lines.lines_size(), 1);
    EXPECT_EQ(lines.lines(0).message(), "the cause");
    EXPECT_EQ(lines.first_number(), 1) << "so that it is known again";
  }
}

TEST(PlannerLinkTest, SaysWhoseStepsWereMoreThanCouldBeSent) {
  BreakingPlanner planner;
  Outbox outbox;
  v1::ConnectRequest progress;
  progress.mutable_progress()->set_job("jobs/1");
  progress.mutable_progress()->add_devices();
  for (size_t step = 0; step < 2 * Outbox::kBound; ++step) outbox.Push(progress);
  absl::Notification said;
  const auto lacks = [&](const std::string& job) {
    EXPECT_EQ(job, "jobs/1");
    said.Notify();
  };
  auto link = PlannerLink::Open(
      planner.address(), ChannelSecurity(), &outbox,
      {[] { return v1::Register(); }, [](const v1::ConnectResponse&) {}, [](bool) {}, lacks});
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_TRUE(said.WaitForNotificationWithTimeout(absl::Seconds(60)));
}

TEST(PlannerLinkTest, SaysWhatToLookAtWhereNoPlannerAnswers) {
  std::string warning;
  absl::Notification warned;
  const LogTap tap([&](const LogLine& line) {
    if (line.level != LogLevel::kWarning || warned.HasBeenNotified()) return;
    warning = line.message;
    warned.Notify();
  });
  Outbox outbox;
  auto link = PlannerLink::Open(
      "127.0.0.1:1", ChannelSecurity(), &outbox,
      {[] { return v1::Register(); }, [](const v1::ConnectResponse&) {}, [](bool) {}});
  ASSERT_TRUE(link.ok()) << link.status();
  ASSERT_TRUE(warned.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_THAT(warning, StartsWith("planner at 127.0.0.1:1: "));
  EXPECT_THAT(warning, HasSubstr("is it started, and is that its --listen?"));
}

}  // namespace
}  // namespace stagewright
