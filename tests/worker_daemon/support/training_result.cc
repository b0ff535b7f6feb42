#include "tests/worker_daemon/support/training_result.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {

void ExpectSame(const TrainingResult& found, const TrainingResult& expected, double tolerance) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], tolerance * std::abs(expected.losses[i])) << i;
  for (const auto& [name, tensor] : expected.parameters) {
    ASSERT_TRUE(found.parameters.contains(name)) << name;
    const at::Tensor own = found.parameters.at(name);
    if (!tensor.is_floating_point()) {
      EXPECT_TRUE(at::equal(own, tensor)) << name;
      continue;
    }
    EXPECT_LT(RelativeError(own, tensor), tolerance) << name;
  }
}

}  // namespace stagewright::testing
