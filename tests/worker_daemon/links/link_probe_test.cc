#include "worker_daemon/links/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "tests/worker_daemon/transport/worlds.h"

namespace stagewright {
namespace {

using testing::AllImplementations;
using testing::ConnectedWorld;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Soon;
using testing::World;

class LinkProbeTest : public testing::ImplementationTest {};

// Works for a tenth of a millisecond and has no core for the rest of its time.
void Work() {
  const absl::Time end = absl::Now() + absl::Microseconds(100);
  while (absl::Now() < end) continue;
  absl::SleepFor(absl::Milliseconds(1));
}

TEST_P(LinkProbeTest, BothDirectionsHaveATimeForEverySize) {
  World world = Connected(2);
  std::vector<absl::StatusOr<std::vector<MessageTime>>> times(2);
  std::thread other([&] { times[1] = ProbeLink(*world[1], 0, Soon()); });
  times[0] = ProbeLink(*world[0], 1, Soon());
  other.join();
  for (const auto& direction : times) {
    ASSERT_TRUE(direction.ok()) << direction.status();
    ASSERT_EQ(direction->size(), 5u);
    EXPECT_EQ(direction->front().size, 64);
    EXPECT_EQ(direction->back().size, 512 * kKiB);
    for (const MessageTime& message : *direction) EXPECT_GT(message.time, 0);
  }
}

TEST_P(LinkProbeTest, ACrowdTimesItsWorkAndItsRounds) {
  World world = Connected(3);
  ASSERT_EQ(testing::OpenCollectives(world, {{0, 1, 2}}), absl::OkStatus());
  std::vector<absl::StatusOr<CrowdTimes>> times(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    std::vector<int> peers = {0, 1, 2};
    peers.erase(peers.begin() + i);
    threads.emplace_back([&times, &world, i, peers = std::move(peers)] {
      times[i] = ProbeCrowd(*world[i], peers, {Work, Work}, Soon());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& own : times) {
    ASSERT_TRUE(own.ok()) << own.status();
    EXPECT_GT(own->product, 0);
    EXPECT_LT(own->product, kMillisecond) << "time without a core does not count";
    EXPECT_GT(own->copy, 0);
    EXPECT_GT(own->core_share, 0);
    EXPECT_LT(own->core_share, 0.5);
    EXPECT_GT(own->round, kMillisecond);
    EXPECT_GT(own->sent, 2 * kMiB - 1);
    EXPECT_GT(own->sending, 0);
    EXPECT_GT(own->message, 0);
    EXPECT_GE(own->large_message, own->message);
    EXPECT_GT(own->large_size, 0);
    EXPECT_GT(own->reduction, 0);
  }
}

TEST_P(LinkProbeTest, ACrowdOfOneSendsNothing) {
  World world = Connected(2);
  const auto times = ProbeCrowd(*world[0], {}, {Work, Work}, Soon());
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_GT(times->product, 0);
  EXPECT_EQ(times->round, 0);
  EXPECT_EQ(times->sent, 0);
  EXPECT_EQ(times->message, 0);
  EXPECT_EQ(times->reduction, 0);
}

TEST_P(LinkProbeTest, APeerThatSaysNothingEndsTheProbe) {
  World world = Connected(2);
  const absl::Status status =
      ProbeLink(*world[0], 1, absl::Now() + absl::Milliseconds(200)).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not answer in time"));
}

TEST_P(LinkProbeTest, APeerThatIsLostEndsTheProbe) {
  World world = Connected(2);
  std::thread leaves([&] {
    absl::SleepFor(absl::Milliseconds(100));
    world[1].reset();
  });
  EXPECT_FALSE(ProbeLink(*world[0], 1, Soon()).ok());
  leaves.join();
}

INSTANTIATE_TEST_SUITE_P(All, LinkProbeTest, ::testing::ValuesIn(AllImplementations()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stagewright
