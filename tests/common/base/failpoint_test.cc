#include "common/base/failpoint.h"

#include <signal.h>
#include <stdlib.h>

#include "gtest/gtest.h"

namespace stagewright {
namespace {

// Each in a process of its own, since a program reads the variable once.
void Reach(const char* armed, const char* name, int times) {
  setenv("STAGEWRIGHT_FAILPOINTS", armed, /*overwrite=*/1);
  for (int i = 0; i < times; ++i) ReachFailpoint(name);
  exit(0);
}

TEST(FailpointDeathTest, KillsWhenAPointIsReachedForTheNthTime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(Reach("a.b:crash@3", "a.b", 3), testing::KilledBySignal(SIGKILL),
              "failpoint a.b: crash");
  EXPECT_EXIT(Reach("a.b:crash@3", "a.b", 2), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(Reach("a.b:crash@1", "a.c", 9), testing::ExitedWithCode(0), "");
}

TEST(FailpointDeathTest, RefusesWhatIsNoFailpoint) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* wrong : {"", "a.b", "a.b:crash", "a.b:crash@0", ":crash@1", "a.b:crash@1x"})
    EXPECT_DEATH(Reach(wrong, "a.b", 1), "expected NAME:crash@COUNT");
}

}  // namespace
}  // namespace stagewright
