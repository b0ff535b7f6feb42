// For suites whose jobs run on accelerators, and as they run on processors.
#pragma once

#include <gtest/gtest.h>

#include "tests/worker_daemon/support/tested_accelerator.h"
#include "tests/worker_daemon/support/training_result.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {

inline void Accelerate(DeviceJob& own) {
  const auto name = TestedAccelerator(own.device.value());
  ASSERT_TRUE(name.ok()) << name.status();
  own.torch_device = *name;
}

inline void ExpectSameCounts(const TrainingResult& found, const TrainingResult& expected) {
  ExpectSame(found, expected, 1e-5);
  EXPECT_EQ(found.predicted, expected.predicted);
  EXPECT_EQ(found.correct, expected.correct);
}

class OnAccelerators : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto name = TestedAccelerator(0);
    if (!name.ok()) GTEST_SKIP() << name.status();
  }
};

}  // namespace stagewright::testing
