#include "common/training/parameter_groups.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

Graph TwoParameters() {
  testing::GraphBuilder make("two");
  const Argument weight = make.Weight("layers.0.weight", {2});
  const Argument bias = make.Weight("layers.0.bias", {2});
  const Argument table = make.Weight("table", {2}, /*trainable=*/false);
  Argument x = make.Feature("x", {2});
  for (const Argument& parameter : {weight, bias, table})
    x = make.Add("aten.mul.Tensor", {x, parameter}, {2});
  make.Loss(x, {2});
  return make.Build();
}

TEST(GroupOf, TakesTheFirstThatMatchesANameOrAnAlias) {
  const std::vector<ParameterGroup> groups = {{"*.bias", 0, 1}, {"layers.*", 0.1, 1}};
  Parameter parameter;
  parameter.name = "layers.0.bias";
  EXPECT_EQ(GroupOf(groups, parameter), 0);
  parameter.name = "layers.0.weight";
  EXPECT_EQ(GroupOf(groups, parameter), 1);
  parameter.name = "head.weight";
  EXPECT_EQ(GroupOf(groups, parameter), -1);
  parameter.aliases = {"tail.weight", "tail.bias"};
  EXPECT_EQ(GroupOf(groups, parameter), 0);
  EXPECT_EQ(GroupOf({}, parameter), -1);
}

TEST(GroupsOf, AnswersForEveryParameter) {
  EXPECT_EQ(GroupsOf({{"*.bias", 0, 1}, {"layers.*", 0.1, 1}}, TwoParameters()),
            (std::vector<int>{1, 0, -1}));
  EXPECT_EQ(GroupsOf({}, TwoParameters()), (std::vector<int>{-1, -1, -1}));
}

TEST(CheckGroups, NamesTheField) {
  const auto message = [](std::vector<ParameterGroup> groups) {
    return std::string(Check(groups, TwoParameters(), "spec.").message());
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({{"*", 0.1, 0}}), "");
  EXPECT_EQ(message({{"*.bias", 0, 1}, {"head.*", 0.1, 1}}),
            "spec.optimizer.groups[1].pattern \"head.*\" matches no trainable parameter of the "
            "graph");
  EXPECT_EQ(message({{"table", 0, 1}}),
            "spec.optimizer.groups[0].pattern \"table\" matches no trainable parameter of the "
            "graph");
  EXPECT_EQ(message({{"*", -1, 1}}),
            "spec.optimizer.groups[0].weight_decay must be finite and not negative, is -1");
  EXPECT_EQ(message({{"*", 0, std::nan("")}}),
            "spec.optimizer.groups[0].learning_rate_scale must be finite and not negative, is nan");
}

}  // namespace
}  // namespace stagewright
