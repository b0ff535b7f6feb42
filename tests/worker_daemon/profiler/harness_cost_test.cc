#include "worker_daemon/profiler/harness_cost.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

// How long it is depends on the machine: less than a tiny operator by far.
TEST(HarnessCost, IsSmall) {
  const auto cost = MeasureHarness(at::kCPU);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_GE(cost->forward, 0);
  EXPECT_LT(cost->forward, 1e6);
  EXPECT_GE(cost->backward, 0);
  EXPECT_LT(cost->backward, 1e6);
}

}  // namespace
}  // namespace stagewright
