#include "common/wire/training_proto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace stagewright {
namespace {

TrainingSpec Everything() {
  TrainingSpec spec;
  spec.optimizer.kind = Optimizer::kAdam;
  spec.optimizer.learning_rate = 0.25;
  spec.optimizer.weight_decay = 0.125;
  spec.optimizer.momentum = 0.75;
  spec.optimizer.nesterov = true;
  spec.optimizer.beta1 = 0.5;
  spec.optimizer.beta2 = 0.625;
  spec.optimizer.epsilon = 1e-5;
  spec.optimizer.decoupled_weight_decay = true;
  spec.optimizer.schedule = {Decay::kCosine, 3, 20, 0.1, 7, 0.3};
  spec.optimizer.groups = {{"*.bias", 0, 1}, {"head.*", 0.5, 2}};
  spec.max_gradient_norm = 1.5;
  spec.on_non_finite = NonFinite::kSkip;
  spec.precision = Precision::kBFloat16;
  spec.evaluation = {.every = 4, .patience = 5, .min_delta = 0.01};
  spec.checkpoints = {.every_steps = 6, .every = kSecond, .keep = 3, .fail_job = true};
  return spec;
}

void ExpectRoundTrip(const TrainingSpec& spec) {
  v1::JobSpec proto;
  SetTraining(spec, proto);
  const absl::StatusOr<TrainingSpec> back = TrainingFromProto(proto);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == spec) << proto.DebugString();
}

TEST(TrainingProto, ComesBack) {
  ExpectRoundTrip({});
  ExpectRoundTrip(Everything());
  TrainingSpec spec;
  for (const auto& [kind, name] : kOptimizerNames) {
    spec.optimizer.kind = kind;
    ExpectRoundTrip(spec);
  }
  for (const auto& [decay, name] : kDecayNames) {
    spec.optimizer.schedule.decay = decay;
    ExpectRoundTrip(spec);
  }
  for (const auto& [policy, name] : kNonFiniteNames) {
    spec.on_non_finite = policy;
    ExpectRoundTrip(spec);
  }
  for (const auto& [precision, name] : kPrecisionNames) {
    spec.precision = precision;
    ExpectRoundTrip(spec);
  }
}

TEST(TrainingProto, ReplacesWhatItReads) {
  v1::JobSpec proto;
  SetTraining(Everything(), proto);
  proto.set_mini_batch(8);
  SetTraining({}, proto);
  EXPECT_EQ(proto.mini_batch(), 8);
  const auto back = TrainingFromProto(proto);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == TrainingSpec());
}

TEST(TrainingProto, WhatIsNotSaidHasADefault) {
  v1::JobSpec proto;
  proto.mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD);
  proto.mutable_checkpoints()->set_every_steps(2);
  const auto spec = TrainingFromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->optimizer.schedule.decay, Decay::kConstant);
  EXPECT_EQ(spec->on_non_finite, NonFinite::kStop);
  EXPECT_EQ(spec->precision, Precision::kGraph);
  EXPECT_EQ(spec->checkpoints->keep, CheckpointPolicy::kDefaultKeep);
}

TEST(TrainingProto, AJobThatMayStartAgainSavesHalfway) {
  v1::JobSpec proto;
  proto.mutable_checkpoints()->set_every_steps(2);
  EXPECT_FALSE(CheckpointsFromProto(proto).halfway);
  proto.set_max_restarts(1);
  EXPECT_TRUE(CheckpointsFromProto(proto).halfway);
  proto.set_on_loss(v1::LOSS_POLICY_WAIT);
  EXPECT_TRUE(CheckpointsFromProto(proto).halfway);
  proto.set_on_loss(v1::LOSS_POLICY_FAIL);
  EXPECT_FALSE(CheckpointsFromProto(proto).halfway);
}

TEST(TrainingProto, AnUnknownValueIsNamed) {
  const std::pair<const char*, std::function<void(v1::JobSpec&)>> cases[] = {
      {"spec.optimizer.kind is not set", [](auto& s) { s.clear_optimizer(); }},
      {"spec.optimizer.kind is not known",
       [](auto& s) { s.mutable_optimizer()->set_kind(static_cast<v1::Optimizer>(77)); }},
      {"spec.optimizer.schedule.decay is not known",
       [](auto& s) {
         s.mutable_optimizer()->mutable_schedule()->set_decay(
             static_cast<v1::LearningRateDecay>(77));
       }},
      {"spec.on_nan unknown policy 77",
       [](auto& s) { s.set_on_nan(static_cast<v1::NanPolicy>(77)); }},
      {"spec.precision unknown precision 77",
       [](auto& s) { s.set_precision(static_cast<v1::Precision>(77)); }},
  };
  for (const auto& [message, spoil] : cases) {
    v1::JobSpec proto;
    SetTraining({}, proto);
    spoil(proto);
    const absl::Status status = TrainingFromProto(proto).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << message;
    EXPECT_EQ(status.message(), message);
  }
}

}  // namespace
}  // namespace stagewright
