#include "common/memory/gradient_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Weights of these many float32, parameters 0, 1, ...
Graph WithWeights(const std::vector<int64_t>& sizes) {
  testing::GraphBuilder builder("weights");
  Argument value = builder.Feature("x", {1});
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Argument weight = builder.Weight("w" + std::to_string(i), {sizes[i], 1});
    value = builder.Add("aten.linear.default", {value, weight}, {1});
  }
  return builder.Build();
}

std::vector<ParameterId> Ids(const std::vector<int64_t>& ids) { return {ids.begin(), ids.end()}; }

TEST(GradientParts, AreOfAMebibyteOrTheLargestParameter) {
  const Graph small = WithWeights({100'000, 100'000, 100'000, 200'000});
  EXPECT_THAT(GradientParts(small, Ids({0, 1, 2, 3})),
              ElementsAre(Ids({0, 1}), Ids({2}), Ids({3})));
  EXPECT_EQ(LargestGradientCopy(small, Ids({0, 1, 2, 3})), 800'000);
  const Graph large = WithWeights({100'000, 600'000, 400'000, 200'000});
  EXPECT_THAT(GradientParts(large, Ids({0, 1, 2, 3})),
              ElementsAre(Ids({0}), Ids({1}), Ids({2, 3})));
  EXPECT_EQ(LargestGradientCopy(large, Ids({0, 1, 2, 3})), 2'400'000);
  EXPECT_THAT(GradientParts(large, {}), IsEmpty());
  EXPECT_EQ(LargestGradientCopy(large, {}), 0);
}

}  // namespace
}  // namespace stagewright
