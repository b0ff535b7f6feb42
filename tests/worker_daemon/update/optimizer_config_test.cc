#include "worker_daemon/update/optimizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT

TEST(CheckOptimizer, NamesTheField) {
  const auto message = [](auto change) {
    OptimizerConfig config;
    change(config);
    return std::string(CheckOptimizer(config).message());
  };
  EXPECT_EQ(message([](OptimizerConfig&) {}), "");
  EXPECT_THAT(message([](OptimizerConfig& c) { c.learning_rate = -1; }),
              ::testing::HasSubstr("optimizer.learning_rate: -1"));
  EXPECT_THAT(message([](OptimizerConfig& c) { c.learning_rate = std::nan(""); }),
              ::testing::HasSubstr("optimizer.learning_rate: nan"));
  EXPECT_THAT(message([](OptimizerConfig& c) { c.learning_rate = 0; }),
              ::testing::HasSubstr("optimizer.learning_rate: 0 is not in (0, inf)"));
  EXPECT_THAT(message([](OptimizerConfig& c) { c.momentum = 1; }),
              ::testing::HasSubstr("optimizer.momentum: 1 is not in [0, 1)"));
  EXPECT_EQ(message([](OptimizerConfig& c) { c.beta1 = 1; }), "");  // SGD has none.
  EXPECT_THAT(message([](OptimizerConfig& c) {
                c.kind = OptimizerKind::kAdam;
                c.beta1 = 1;
              }),
              ::testing::HasSubstr("optimizer.beta1: 1 is not in [0, 1)"));
  EXPECT_THAT(message([](OptimizerConfig& c) {
                c.kind = OptimizerKind::kAdam;
                c.epsilon = 0;
              }),
              ::testing::HasSubstr("optimizer.epsilon: 0"));
  EXPECT_THAT(message([](OptimizerConfig& c) { c.nesterov = true; }),
              ::testing::HasSubstr("optimizer.nesterov: it needs momentum"));
  EXPECT_THAT(message([](OptimizerConfig& c) { c.max_gradient_norm = -2; }),
              ::testing::HasSubstr("optimizer.max_gradient_norm: -2"));
  EXPECT_THAT(message([](OptimizerConfig& c) {
                c.groups = {{"*", 0, 1}, {"a", -1, 1}};
              }),
              ::testing::HasSubstr("optimizer.groups[1].weight_decay: -1"));
  EXPECT_THAT(message([](OptimizerConfig& c) { c.schedule.warmup_steps = -1; }),
              ::testing::HasSubstr("optimizer.schedule.warmup_steps: -1"));
}

Graph TwoParameters() {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 2});
  const int weight = make.AddParameter("layers.0.weight", {2});
  const int bias = make.AddParameter("layers.0.bias", {2});
  const int product = make.AddNode("aten.mul.Tensor", {In(x), Param(weight)}, {Meta({-1, 2})});
  const int sum = make.AddNode("aten.add.Tensor", {Value(product), Param(bias)}, {Meta({-1, 2})});
  return make.Finish(make.AddNode("aten.sum.default", {Value(sum)}, {Meta({})}));
}

TEST(GroupsOf, TakesTheFirstMatch) {
  OptimizerConfig config;
  config.groups = {{"*.bias", 0, 1}, {"layers.*", 0.1, 1}};
  const auto groups = GroupsOf(TwoParameters(), config);
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(*groups, (std::vector<int>{1, 0}));
  EXPECT_EQ(GroupsOf(TwoParameters(), {}).value(), (std::vector<int>{-1, -1}));
}

TEST(GroupsOf, NamesAPatternThatMatchesNothing) {
  OptimizerConfig config;
  config.groups = {{"*.bias", 0, 1}, {"head.*", 0.1, 1}};
  EXPECT_THAT(std::string(GroupsOf(TwoParameters(), config).status().message()),
              ::testing::HasSubstr("optimizer.groups[1].pattern: \"head.*\" matches no"));
}

}  // namespace
}  // namespace stagewright
