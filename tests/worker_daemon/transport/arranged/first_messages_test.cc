#include "worker_daemon/transport/arranged/first_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FirstMessages, GoAllWaysWhereAllTalkToAll) {
  EXPECT_THAT(OrderOfFirstMessages(5, {2, 5, 9}, {2, 9}),
              ElementsAre(FirstMessages{9, 2}, FirstMessages{2, 9}));
}

TEST(FirstMessages, GoNowhereElse) {
  EXPECT_THAT(OrderOfFirstMessages(0, {0, 1, 2, 3}, {1}),
              ElementsAre(FirstMessages{1, std::nullopt}, FirstMessages{std::nullopt, 1}));
  EXPECT_THAT(OrderOfFirstMessages(0, {0, 1, 2, 3}, {}), IsEmpty());
}

// Everybody does what comes first in its order once the other ends do the same: all come to the
// end, and every edge has carried one message each way.
TEST(FirstMessages, EndWhoeverTalksToWhom) {
  std::mt19937 random(7);
  for (int run = 0; run < 300; ++run) {
    const int size = 1 + static_cast<int>(random() % 9);
    std::vector<int> devices;
    for (int i = 0; i < size; ++i) devices.push_back(3 * i);
    std::map<int, std::vector<int>> partners;
    std::multiset<std::pair<int, int>> expected, sent;
    for (int i = 0; i < size; ++i) {
      for (int j = 0; j < i; ++j) {
        if (random() % 3 != 0) continue;
        partners[devices[i]].push_back(devices[j]);
        partners[devices[j]].push_back(devices[i]);
        expected.insert({devices[i], devices[j]});
        expected.insert({devices[j], devices[i]});
      }
    }
    std::map<int, std::vector<FirstMessages>> left;
    for (const int device : devices) {
      left[device] = OrderOfFirstMessages(device, devices, partners[device]);
      std::reverse(left[device].begin(), left[device].end());  // The next is the last.
    }
    // A round ends when all that meet in it, directly or not, have come to it.
    const auto waits = [&](int device) {
      const FirstMessages& now = left[device].back();
      const auto meets = [&](const std::optional<int>& other, bool sends) {
        if (!other.has_value()) return true;
        if (left[*other].empty()) return false;
        const FirstMessages& there = left[*other].back();
        return (sends ? there.from : there.to) == device;
      };
      return !meets(now.to, true) || !meets(now.from, false);
    };
    for (bool moves = true; moves;) {
      // Those that wait hold up whom they would meet.
      std::set<int> ready;
      for (const int device : devices) {
        if (!left[device].empty() && !waits(device)) ready.insert(device);
      }
      for (bool fewer = true; fewer;) {
        fewer = false;
        for (const int device : std::set<int>(ready)) {
          const FirstMessages& now = left[device].back();
          const bool held = (now.to.has_value() && !ready.contains(*now.to)) ||
                            (now.from.has_value() && !ready.contains(*now.from));
          if (held) fewer = ready.erase(device) > 0;
        }
      }
      moves = !ready.empty();
      for (const int device : ready) {
        if (left[device].back().to.has_value()) sent.insert({device, *left[device].back().to});
        left[device].pop_back();
      }
    }
    EXPECT_EQ(sent, expected) << "run " << run;
  }
}

}  // namespace
}  // namespace stagewright
