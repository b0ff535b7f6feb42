#include "common/training/optimizer_sharding.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(OptimizerSharding, NamesAreReadBack) {
  for (OptimizerSharding sharding :
       {OptimizerSharding::kNone, OptimizerSharding::kStates, OptimizerSharding::kGradients})
    EXPECT_EQ(ParseOptimizerSharding(OptimizerShardingName(sharding)), sharding);
  EXPECT_EQ(ParseOptimizerSharding("auto"), std::nullopt);
  EXPECT_EQ(ParseOptimizerSharding(""), std::nullopt);
}

}  // namespace
}  // namespace stagewright
