#include "worker_daemon/transport/arranged/arranger.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagewright::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TransferOffer SendOffer(int device, int peer, uint32_t channel, uint64_t id, uint64_t bytes = 8) {
  return {TransferOffer::Kind::kSend, device, id, peer, {channel}, bytes};
}

TransferOffer ReceiveOffer(int device, int peer, uint32_t channel, uint64_t id,
                           uint64_t bytes = 8) {
  return {TransferOffer::Kind::kReceive, device, id, peer, {channel}, bytes};
}

TransferOffer ReduceOffer(int device, uint64_t group, uint32_t members, uint32_t channel,
                          uint64_t id) {
  return {TransferOffer::Kind::kReduce, device, id, 0, {channel}, 8, group, members, 0};
}

TEST(ArrangerTest, OrdersBothEndsOnceBothHaveOffered) {
  Arranger arranger;
  arranger.Add(SendOffer(0, 1, 5, 10));
  EXPECT_THAT(arranger.Take(), IsEmpty());
  arranger.Add(ReceiveOffer(1, 0, 6, 20));  // Another channel.
  arranger.Add(ReceiveOffer(2, 0, 5, 30));  // Another device.
  EXPECT_THAT(arranger.Take(), IsEmpty());
  arranger.Add(ReceiveOffer(1, 0, 5, 21));
  const std::vector<TransferOrder> orders = arranger.Take();
  ASSERT_THAT(orders, SizeIs(2));
  EXPECT_EQ(orders[0].device, 0);
  EXPECT_EQ(orders[0].id, 10u);
  EXPECT_EQ(orders[1].device, 1);
  EXPECT_EQ(orders[1].id, 21u);
  EXPECT_EQ(orders[0].round, orders[1].round);
  EXPECT_TRUE(orders[0].last_of_round && orders[1].last_of_round);
  EXPECT_THAT(arranger.Take(), IsEmpty());
}

TEST(ArrangerTest, ASendAndAReceiveOfADeviceShareARound) {
  Arranger arranger;
  for (const int device : {0, 1}) {
    arranger.Add(SendOffer(device, 1 - device, 0, 1));
    arranger.Add(ReceiveOffer(device, 1 - device, 0, 2));
  }
  const std::vector<TransferOrder> orders = arranger.Take();
  ASSERT_THAT(orders, SizeIs(4));
  for (const TransferOrder& order : orders) EXPECT_EQ(order.round, orders[0].round);
  EXPECT_FALSE(orders[0].last_of_round);
  EXPECT_TRUE(orders[1].last_of_round);
}

TEST(ArrangerTest, DifferentSizesFailBothEnds) {
  Arranger arranger;
  arranger.Add(ReceiveOffer(1, 0, 0, 1, 9));
  arranger.Add(SendOffer(0, 1, 0, 1, 8));
  for (const TransferOrder& order : arranger.Take()) {
    EXPECT_TRUE(order.mismatch);
    EXPECT_EQ(order.offered, 8u);
    EXPECT_EQ(order.expected, 9u);
  }
}

TEST(ArrangerTest, AReductionWaitsForAllMembers) {
  Arranger arranger;
  arranger.Add(ReduceOffer(2, 77, 3, 0, 1));
  arranger.Add(ReduceOffer(0, 77, 3, 0, 1));
  arranger.Add(ReduceOffer(0, 77, 3, 0, 2));  // The next of the same tag.
  arranger.Add(ReduceOffer(1, 78, 3, 0, 1));  // Another group.
  EXPECT_THAT(arranger.Take(), IsEmpty());
  arranger.Add(ReduceOffer(1, 77, 3, 0, 5));
  const std::vector<TransferOrder> orders = arranger.Take();
  ASSERT_THAT(orders, SizeIs(3));
  EXPECT_EQ(orders[0].id, 1u);
}

// Runs orders the way a mover does: each device one round after the other, each round until all its
// parts have met their counterparts. Returns how many operations ended.
size_t EndedWhenRun(
    std::map<int, std::vector<TransferOrder>> queues,
    const std::map<std::pair<int, uint64_t>, std::vector<std::pair<int, uint64_t>>>& mates) {
  size_t ended = 0;
  std::map<int, size_t> at;
  const auto running = [&](int device, uint64_t id) {
    const std::vector<TransferOrder>& queue = queues[device];
    for (size_t i = at[device]; i < queue.size(); ++i) {
      if (queue[i].id == id) return true;
      if (queue[i].last_of_round) return false;
    }
    return false;
  };
  for (bool moved = true; moved;) {
    moved = false;
    // The rounds whose parts can all end; they do so together.
    for (auto& [device, queue] : queues) {
      size_t end = at[device];
      bool ready = end < queue.size();
      while (ready && end < queue.size()) {
        for (const auto& [mate, id] : mates.at({device, queue[end].id})) {
          // A mate that is past it has already ended it.
          const auto& others = queues[mate];
          const bool over = std::any_of(
              others.begin(), others.begin() + static_cast<ptrdiff_t>(at[mate]),
              [&, wanted = id](const TransferOrder& order) { return order.id == wanted; });
          ready = ready && (over || running(mate, id));
        }
        if (queue[end++].last_of_round) break;
      }
      if (!ready) continue;
      ended += end - at[device];
      at[device] = end;
      moved = true;
    }
  }
  return ended;
}

// Whatever is offered in whatever order, and however the offers are cut into turns: everything ends
// exactly once, a round has at most one send and one receive of a device, and none waits for ever.
TEST(ArrangerPropertyTest, NothingEverDeadlocks) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const int devices = 2 + static_cast<int>(random() % 5);
    std::map<int, std::vector<TransferOffer>> offers;
    std::map<std::pair<int, uint64_t>, std::vector<std::pair<int, uint64_t>>> mates;
    uint64_t id = 1;
    for (int i = 0; i < 60; ++i) {
      const uint32_t channel = static_cast<uint32_t>(i);
      if (random() % 6 == 0) {
        const uint32_t members = 2 + random() % static_cast<uint32_t>(devices - 1);
        std::vector<int> all(static_cast<size_t>(devices));
        std::iota(all.begin(), all.end(), 0);
        std::shuffle(all.begin(), all.end(), random);
        std::vector<std::pair<int, uint64_t>> group;
        for (uint32_t m = 0; m < members; ++m) group.push_back({all[m], id++});
        for (const auto& [device, own] : group) {
          offers[device].push_back(ReduceOffer(device, 1000 + channel, members, channel, own));
          mates[{device, own}] = group;
        }
        continue;
      }
      const int from = static_cast<int>(random() % static_cast<uint32_t>(devices));
      const int to =
          (from + 1 + static_cast<int>(random() % static_cast<uint32_t>(devices - 1))) % devices;
      offers[from].push_back(SendOffer(from, to, channel, id));
      offers[to].push_back(ReceiveOffer(to, from, channel, id + 1));
      mates[{from, id}] = {{to, id + 1}};
      mates[{to, id + 1}] = {{from, id}};
      id += 2;
    }
    std::vector<TransferOffer> posted;
    for (auto& [device, own] : offers) {
      std::shuffle(own.begin(), own.end(), random);
      posted.insert(posted.end(), own.begin(), own.end());
    }
    std::shuffle(posted.begin(), posted.end(), random);

    Arranger arranger;
    std::map<int, std::vector<TransferOrder>> queues;
    size_t count = 0;
    for (size_t i = 0; i < posted.size(); ++i) {
      arranger.Add(posted[i]);
      if (i + 1 < posted.size() && random() % 7 != 0) continue;
      for (const TransferOrder& order : arranger.Take()) {
        queues[order.device].push_back(order);
        ++count;
      }
    }
    ASSERT_EQ(count, posted.size()) << "seed " << seed;
    std::map<std::pair<int, uint64_t>, TransferOffer::Kind> kinds;
    for (const TransferOffer& offer : posted) kinds[{offer.device, offer.id}] = offer.kind;
    for (const auto& [device, queue] : queues) {
      std::map<uint64_t, std::vector<TransferOffer::Kind>> rounds;
      uint64_t last = 0;
      for (const TransferOrder& order : queue) {
        EXPECT_GE(order.round, last);
        last = order.round;
        rounds[order.round].push_back(kinds.at({device, order.id}));
      }
      for (const auto& [round, parts] : rounds) {
        EXPECT_LE(std::count(parts.begin(), parts.end(), TransferOffer::Kind::kSend), 1);
        EXPECT_LE(std::count(parts.begin(), parts.end(), TransferOffer::Kind::kReceive), 1);
        if (std::count(parts.begin(), parts.end(), TransferOffer::Kind::kReduce) > 0) {
          EXPECT_THAT(parts, SizeIs(1));
        }
      }
    }
    EXPECT_EQ(EndedWhenRun(queues, mates), posted.size()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace stagewright::testing
