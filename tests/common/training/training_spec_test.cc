#include "common/training/training_spec.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

Graph OneLayer() {
  testing::GraphBuilder make("layer");
  make.Loss(make.Linear(make.Feature("x", {3}), 3, 3), {3});
  return make.Build();
}

TEST(NeedsGradientNorm, IsForClippingSkippingAndScaledLosses) {
  TrainingSpec spec;
  EXPECT_FALSE(NeedsGradientNorm(spec));
  spec.precision = Precision::kBFloat16;
  spec.on_non_finite = NonFinite::kContinue;
  EXPECT_FALSE(NeedsGradientNorm(spec));
  spec.precision = Precision::kFloat16;
  EXPECT_TRUE(NeedsGradientNorm(spec));
  EXPECT_TRUE(NeedsGradientNorm({.max_gradient_norm = 1}));
  EXPECT_TRUE(NeedsGradientNorm({.on_non_finite = NonFinite::kSkip}));
}

struct BadPart {
  const char* message;
  std::function<void(TrainingSpec&)> spoil;
  bool asynchronous = false;
};

TEST(CheckTraining, EveryPartIsChecked) {
  const BadPart cases[] = {
      {"optimizer.learning_rate must be positive and finite, is 0",
       [](auto& s) { s.optimizer.learning_rate = 0; }},
      {"optimizer.schedule.gamma must be positive and finite, is 0",
       [](auto& s) { s.optimizer.schedule = {.decay = Decay::kStep, .gamma = 0}; }},
      {"optimizer.groups[0].pattern \"a\" matches no trainable parameter of the graph",
       [](auto& s) {
         s.optimizer.groups = {{"a", 0, 1}};
       }},
      {"optimizer.max_gradient_norm must be finite and not negative, is -2",
       [](auto& s) { s.max_gradient_norm = -2; }},
      {"optimizer.max_gradient_norm cannot be kept by an asynchronous plan, whose gradients are "
       "never all there",
       [](auto& s) { s.max_gradient_norm = 1; }, true},
      {"on_nan skip: an asynchronous plan has no point at which all devices agree",
       [](auto& s) { s.on_non_finite = NonFinite::kSkip; }, true},
      {"precision fp16: an asynchronous plan has no point at which all devices agree on the scale "
       "of the loss; bf16 needs none",
       [](auto& s) { s.precision = Precision::kFloat16; }, true},
      {"evaluate_every needs evaluation_data_path", [](auto& s) { s.evaluation.every = 1; }},
      {"checkpoints needs every_steps or every_ns", [](auto& s) { s.checkpoints.emplace(); }},
      {"checkpoints.every_ns is not possible with an asynchronous plan, which is flushed for a "
       "checkpoint: use every_steps, so that losses do not depend on the clock",
       [](auto& s) { s.checkpoints = {.every = kSecond}; }, true},
  };
  const Graph graph = OneLayer();
  for (const BadPart& bad : cases) {
    TrainingSpec spec;
    EXPECT_EQ(Check(spec, {graph, bad.asynchronous}), absl::OkStatus());
    bad.spoil(spec);
    const absl::Status status = Check(spec, {graph, bad.asynchronous});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad.message;
    EXPECT_EQ(status.message(), bad.message);
  }
}

}  // namespace
}  // namespace stagewright
