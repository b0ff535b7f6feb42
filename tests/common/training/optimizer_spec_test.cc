#include "common/training/optimizer_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace stagewright {
namespace {

using ::testing::ElementsAre;

TEST(OptimizerByName, KnowsEveryName) {
  EXPECT_THAT(TrainableOptimizerNames(), ElementsAre("sgd", "momentum", "adam", "adamw"));
  for (const std::string& name : TrainableOptimizerNames())
    EXPECT_TRUE(OptimizerByName(name).has_value()) << name;
  EXPECT_EQ(OptimizerByName("momentum")->kind, Optimizer::kSgdMomentum);
  EXPECT_EQ(OptimizerByName("adam"), (OptimizerSpec{.kind = Optimizer::kAdam}));
  EXPECT_EQ(OptimizerByName("adamw"),
            (OptimizerSpec{.kind = Optimizer::kAdam, .decoupled_weight_decay = true}));
  EXPECT_FALSE(OptimizerByName("lion").has_value());
}

TEST(StateName, MomentumIsAnSgd) {
  EXPECT_EQ(StateName(Optimizer::kSgd), "sgd");
  EXPECT_EQ(StateName(Optimizer::kSgdMomentum), "sgd");
  EXPECT_EQ(StateName(Optimizer::kAdam), "adam");
}

TEST(CheckOptimizer, NamesTheField) {
  const auto message = [](auto change) {
    OptimizerSpec spec;
    change(spec);
    return std::string(Check(spec, "spec.").message());
  };
  EXPECT_EQ(message([](OptimizerSpec&) {}), "");
  EXPECT_EQ(message([](OptimizerSpec& s) { s.learning_rate = -1; }),
            "spec.optimizer.learning_rate must be positive and finite, is -1");
  EXPECT_EQ(message([](OptimizerSpec& s) { s.learning_rate = std::nan(""); }),
            "spec.optimizer.learning_rate must be positive and finite, is nan");
  EXPECT_EQ(message([](OptimizerSpec& s) { s.learning_rate = 0; }),
            "spec.optimizer.learning_rate must be positive and finite, is 0");
  EXPECT_EQ(message([](OptimizerSpec& s) { s.weight_decay = -0.1; }),
            "spec.optimizer.weight_decay must be finite and not negative, is -0.1");
  for (const double momentum : {0.0, 1.0, -1.0}) {
    EXPECT_EQ(message([&](OptimizerSpec& s) {
                s.kind = Optimizer::kSgdMomentum;
                s.momentum = momentum;
              }),
              absl::StrCat("spec.optimizer.momentum must lie in (0, 1), is ", momentum));
  }
  EXPECT_EQ(message([](OptimizerSpec& s) {
              s.kind = Optimizer::kAdam;
              s.beta1 = 1;
            }),
            "spec.optimizer.beta1 must lie in [0, 1), is 1");
  EXPECT_EQ(message([](OptimizerSpec& s) {
              s.kind = Optimizer::kAdam;
              s.beta2 = std::nan("");
            }),
            "spec.optimizer.beta2 must lie in [0, 1), is nan");
  EXPECT_EQ(message([](OptimizerSpec& s) {
              s.kind = Optimizer::kAdam;
              s.epsilon = 0;
            }),
            "spec.optimizer.epsilon must be positive and finite, is 0");
  EXPECT_EQ(message([](OptimizerSpec& s) { s.schedule.warmup_steps = -1; }),
            "spec.optimizer.schedule.warmup_steps must not be negative, is -1");
}

TEST(CheckOptimizer, WhatTheKindDoesNotUseIsIgnored) {
  OptimizerSpec spec;
  spec.momentum = 7;
  spec.beta1 = spec.epsilon = -1;
  EXPECT_EQ(Check(spec), absl::OkStatus());
  spec.kind = Optimizer::kSgdMomentum;
  spec.momentum = 0.5;
  EXPECT_EQ(Check(spec), absl::OkStatus());
}

}  // namespace
}  // namespace stagewright
