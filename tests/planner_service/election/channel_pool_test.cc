#include "planner_service/election/channel_pool.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace stagewright {
namespace {

std::shared_ptr<grpc::Channel> Nowhere() {
  return grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials());
}

TEST(ChannelPool, OpensAChannelWhenTheOthersAreFull) {
  int opened = 0;
  ChannelPool pool([&] { return ++opened, Nowhere(); });
  std::vector<std::shared_ptr<grpc::Channel>> calls;
  for (int i = 0; i < ChannelPool::kCalls; ++i) calls.push_back(pool.Take());
  EXPECT_EQ(opened, 1);
  calls.push_back(pool.Take());
  EXPECT_EQ(opened, 2);
  EXPECT_NE(calls.front().get(), calls.back().get());
  calls.erase(calls.begin());
  const auto next = pool.Take();
  EXPECT_EQ(next.get(), calls.front().get());  // There was room again.
  EXPECT_EQ(opened, 2);
}

TEST(ChannelPool, ClosesWhatNobodyNeedsButOne) {
  ChannelPool pool(&Nowhere);
  {
    std::vector<std::shared_ptr<grpc::Channel>> calls;
    for (int i = 0; i < 5 * ChannelPool::kCalls; ++i) calls.push_back(pool.Take());
    EXPECT_EQ(pool.size(), 5u);
  }
  EXPECT_EQ(pool.size(), 1u);
}

TEST(ChannelPool, KeepsTheOneWithRoomForTheNextCall) {
  int opened = 0;
  ChannelPool pool([&] { return ++opened, Nowhere(); });
  std::vector<std::shared_ptr<grpc::Channel>> watches;
  for (int i = 0; i < ChannelPool::kCalls; ++i) watches.push_back(pool.Take());
  for (int i = 0; i < 3; ++i) pool.Take();
  EXPECT_EQ(opened, 2);
  watches.pop_back();
  EXPECT_EQ(pool.size(), 1u);  // The first has room again.
}

TEST(ChannelPool, SharesOutWhatGoesBeyondItsChannels) {
  ChannelPool pool(&Nowhere);
  std::vector<std::shared_ptr<grpc::Channel>> calls;
  const int full = ChannelPool::kCalls * ChannelPool::kMost;
  for (int i = 0; i < full + ChannelPool::kMost; ++i) calls.push_back(pool.Take());
  EXPECT_EQ(pool.size(), static_cast<size_t>(ChannelPool::kMost));
  std::set<grpc::Channel*> more;
  for (int i = full; i < full + ChannelPool::kMost; ++i) more.insert(calls[i].get());
  EXPECT_EQ(more.size(), static_cast<size_t>(ChannelPool::kMost));
}

TEST(ChannelPool, LeavesItsChannelsToTheCallsThatHoldThem) {
  std::shared_ptr<grpc::Channel> call;
  {
    ChannelPool pool(&Nowhere);
    call = pool.Take();
  }
  EXPECT_EQ(call->GetState(/*try_to_connect=*/false), GRPC_CHANNEL_IDLE);
}

}  // namespace
}  // namespace stagewright
