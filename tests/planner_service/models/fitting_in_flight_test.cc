#include "planner_service/models/fitting_in_flight.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/clusters.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

TEST(FittingInFlight, IsTheMostWhoseMemoryFits) {
  testing::Rng random(3);
  const testing::SearchCase c(testing::RandomProfile(random, 8), testing::FlatCluster(2), 32);
  const std::vector<int32_t>& order = c.operators.dag().order();
  const StageOracle oracle(c.problem, {order.begin(), order.end()});
  const int32_t end = oracle.size();
  for (bool recompute : {false, true}) {
    for (int64_t micro_batches : {1, 7, 16}) {
      StageOracle::Flow flow{2, 1, micro_batches, recompute};
      const Bytes one = oracle.Memory(0, end, flow);
      EXPECT_EQ(FittingInFlight(oracle, 0, end, flow, one - 1), 0);
      for (int64_t count = 1; count <= micro_batches; ++count) {
        flow.micro_batches_in_flight = count;
        const Bytes memory = oracle.Memory(0, end, flow);
        const int64_t fits = FittingInFlight(oracle, 0, end, flow, memory);
        EXPECT_GE(fits, count);
        EXPECT_LE(fits, micro_batches);
        flow.micro_batches_in_flight = fits;
        EXPECT_LE(oracle.Memory(0, end, flow), memory);
        flow.micro_batches_in_flight = fits + 1;
        if (fits < micro_batches) {
          EXPECT_GT(oracle.Memory(0, end, flow), memory);
        }
      }
    }
  }
}

}  // namespace
}  // namespace stagewright
