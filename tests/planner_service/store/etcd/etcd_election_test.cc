#include "planner_service/store/etcd/etcd_election.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/planner_service/store/etcd/etcd_server.h"

namespace stagewright {
namespace {

class EtcdElectionTest : public ::testing::Test {
 protected:
  ElectionState Run(const std::string& about, absl::Duration ttl = absl::Seconds(600)) {
    return Campaign(client_, "/p", about, ttl).value();
  }

  testing::EtcdServer server_;
  const std::shared_ptr<EtcdClient> client_ =
      std::make_shared<EtcdClient>(EtcdPlace{{server_.endpoint()}, "/"}, absl::Seconds(60));
};

TEST_F(EtcdElectionTest, OneLeadsUntilItEnds) {
  EXPECT_EQ(LeaderOf(*client_, "/p").value(), "");
  ElectionState first = Run("first");
  ASSERT_NE(first.won, nullptr);
  EXPECT_TRUE(first.won->holds());
  const ElectionState second = Run("second");
  EXPECT_EQ(second.won, nullptr);
  EXPECT_EQ(second.leader, "first");
  EXPECT_EQ(LeaderOf(*client_, "/p").value(), "first");
  EXPECT_EQ(LeaderOf(*client_, "/other").value(), "");
  const FencingToken token = first.won->token();
  first.won.reset();
  const ElectionState third = Run("third");
  ASSERT_NE(third.won, nullptr);
  EXPECT_GT(third.won->token().create_revision, token.create_revision);
}

TEST_F(EtcdElectionTest, OneOfManyWins) {
  std::vector<ElectionState> states(8);
  std::vector<std::thread> threads;
  for (ElectionState& state : states) threads.emplace_back([&] { state = Run("one"); });
  int won = 0;
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i].join();
    won += states[i].won != nullptr ? 1 : 0;
  }
  EXPECT_EQ(won, 1);
}

TEST_F(EtcdElectionTest, ALeaseIsKeptForLongerThanItLasts) {
  const ElectionState state = Run("first", absl::Seconds(8));
  absl::SleepFor(absl::Seconds(10));
  EXPECT_TRUE(state.won->holds());
  EXPECT_EQ(LeaderOf(*client_, "/p").value(), "first");
}

TEST_F(EtcdElectionTest, WithoutTheClusterLeadershipEnds) {
  const ElectionState state = Run("first", absl::Seconds(2));
  server_.Stop();
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (state.won->holds() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(50));
  EXPECT_FALSE(state.won->holds());
}

}  // namespace
}  // namespace stagewright
