#include "worker_daemon/transport/short_turns.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

namespace stagewright {
namespace {

TEST(ShortTurnsTest, ShortensTheTurnsOfTheCallingThreadAlone) {
  const uint64_t before = TurnNanos();
  std::thread([before] {
    const int nice = getpriority(PRIO_PROCESS, 0);
    AskForShortTurns();
    EXPECT_EQ(TurnNanos(), before == 0 ? 0u : 100'000u);
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
  }).join();
  EXPECT_EQ(TurnNanos(), before);
}

}  // namespace
}  // namespace stagewright
