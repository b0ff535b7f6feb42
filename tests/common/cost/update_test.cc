#include "common/cost/update.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

DeviceKind Kind() {
  DeviceKind kind;
  kind.memory_bytes_per_second = 1e9;
  kind.kernel_overhead = 7;
  kind.step_overhead = 30;
  kind.parameter_overhead = 5;
  return kind;
}

TEST(OptimizerStepTime, ReadsAndWritesEveryByte) {
  EXPECT_EQ(OptimizerStepTime(Kind(), 1000, 0), 37 + 2000);
  EXPECT_EQ(OptimizerStepTime(Kind(), 1000, 3), 37 + 15 + 2000);
  EXPECT_EQ(OptimizerStepTime(Kind(), 0, 0), 0);
}

TEST(OptimizerStepTime, GoesByTheRateOfUpdatesWhereThatIsKnown) {
  DeviceKind kind = Kind();
  kind.update_bytes_per_second = 4e9;
  EXPECT_EQ(OptimizerStepTime(kind, 1000, 0), 37 + 500);
  EXPECT_EQ(LeastOptimizerStepTime(kind, 1000), 499);
}

TEST(LeastOptimizerStepTime, IsNeverMoreThanWhatBytesAddToAStep) {
  DeviceKind kind = Kind();
  kind.memory_bytes_per_second = 7.3e9;
  for (Bytes bytes : {Bytes(1), Bytes(3), Bytes(10), Bytes(999), Bytes(123457)}) {
    for (Bytes others : {Bytes(0), Bytes(1), Bytes(2), Bytes(77), Bytes(5000)}) {
      const Nanos with = OptimizerStepTime(kind, bytes + others, 2);
      const Nanos without = OptimizerStepTime(kind, others, 1);
      EXPECT_LE(LeastOptimizerStepTime(kind, bytes), static_cast<double>(with - without));
    }
  }
  EXPECT_EQ(LeastOptimizerStepTime(Kind(), 0), 0);
  EXPECT_EQ(LeastOptimizerStepTime(Kind(), 1000), 1999);
}

}  // namespace
}  // namespace stagewright
