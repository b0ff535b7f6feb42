#include "common/wire/training_proto.h"

#include "common/training/field_check.h"

namespace stagewright {
namespace {

constexpr absl::string_view kSpec = "spec.";

absl::StatusOr<Optimizer> KindFromProto(v1::Optimizer kind) {
  if (kind == v1::OPTIMIZER_UNSPECIFIED) return WrongField(kSpec, "optimizer.kind", "is not set");
  if (!v1::Optimizer_IsValid(kind)) return WrongField(kSpec, "optimizer.kind", "is not known");
  return FromProto(kind);
}

absl::StatusOr<Decay> FromProto(v1::LearningRateDecay decay) {
  switch (decay) {
    case v1::LEARNING_RATE_DECAY_UNSPECIFIED:
    case v1::LEARNING_RATE_DECAY_CONSTANT:
      return Decay::kConstant;
    case v1::LEARNING_RATE_DECAY_LINEAR:
      return Decay::kLinear;
    case v1::LEARNING_RATE_DECAY_COSINE:
      return Decay::kCosine;
    case v1::LEARNING_RATE_DECAY_STEP:
      return Decay::kStep;
    default:
      return WrongField(kSpec, "optimizer.schedule.decay", "is not known");
  }
}

v1::LearningRateDecay ToProto(Decay decay) {
  switch (decay) {
    case Decay::kConstant:
      return v1::LEARNING_RATE_DECAY_CONSTANT;
    case Decay::kLinear:
      return v1::LEARNING_RATE_DECAY_LINEAR;
    case Decay::kCosine:
      return v1::LEARNING_RATE_DECAY_COSINE;
    case Decay::kStep:
      return v1::LEARNING_RATE_DECAY_STEP;
  }
  return v1::LEARNING_RATE_DECAY_UNSPECIFIED;
}

absl::StatusOr<NonFinite> FromProto(v1::NanPolicy policy) {
  switch (policy) {
    case v1::NAN_POLICY_UNSPECIFIED:
    case v1::NAN_POLICY_STOP:
      return NonFinite::kStop;
    case v1::NAN_POLICY_SKIP:
      return NonFinite::kSkip;
    case v1::NAN_POLICY_CONTINUE:
      return NonFinite::kContinue;
    default:
      return WrongField(kSpec, "on_nan", "unknown policy ", static_cast<int>(policy));
  }
}

v1::NanPolicy ToProto(NonFinite policy) {
  switch (policy) {
    case NonFinite::kStop:
      return v1::NAN_POLICY_STOP;
    case NonFinite::kSkip:
      return v1::NAN_POLICY_SKIP;
    case NonFinite::kContinue:
      return v1::NAN_POLICY_CONTINUE;
  }
  return v1::NAN_POLICY_UNSPECIFIED;
}

absl::StatusOr<LearningRateSchedule> FromProto(const v1::LearningRateSchedule& proto) {
  LearningRateSchedule schedule;
  ASSIGN_OR_RETURN(schedule.decay, FromProto(proto.decay()));
  schedule.warmup_steps = proto.warmup_steps();
  schedule.decay_steps = proto.decay_steps();
  schedule.end_factor = proto.end_factor();
  schedule.every = proto.every();
  schedule.gamma = proto.gamma();
  return schedule;
}

absl::StatusOr<OptimizerSpec> FromProto(const v1::OptimizerConfig& proto) {
  OptimizerSpec spec;
  ASSIGN_OR_RETURN(spec.kind, KindFromProto(proto.kind()));
  spec.learning_rate = proto.learning_rate();
  spec.weight_decay = proto.weight_decay();
  spec.momentum = proto.momentum();
  spec.nesterov = proto.nesterov();
  spec.beta1 = proto.beta1();
  spec.beta2 = proto.beta2();
  spec.epsilon = proto.epsilon();
  spec.decoupled_weight_decay = proto.decoupled_weight_decay();
  ASSIGN_OR_RETURN(spec.schedule, FromProto(proto.schedule()));
  for (const v1::ParameterGroup& group : proto.groups())
    spec.groups.push_back({group.pattern(), group.weight_decay(), group.learning_rate_scale()});
  return spec;
}

v1::OptimizerConfig ToProto(const TrainingSpec& training) {
  const OptimizerSpec& spec = training.optimizer;
  v1::OptimizerConfig proto;
  proto.set_kind(ToProto(spec.kind));
  proto.set_learning_rate(spec.learning_rate);
  proto.set_weight_decay(spec.weight_decay);
  proto.set_momentum(spec.momentum);
  proto.set_nesterov(spec.nesterov);
  proto.set_beta1(spec.beta1);
  proto.set_beta2(spec.beta2);
  proto.set_epsilon(spec.epsilon);
  proto.set_decoupled_weight_decay(spec.decoupled_weight_decay);
  proto.set_max_gradient_norm(training.max_gradient_norm);
  v1::LearningRateSchedule* schedule = proto.mutable_schedule();
  schedule->set_decay(ToProto(spec.schedule.decay));
  schedule->set_warmup_steps(spec.schedule.warmup_steps);
  schedule->set_decay_steps(spec.schedule.decay_steps);
  schedule->set_end_factor(spec.schedule.end_factor);
  schedule->set_every(spec.schedule.every);
  schedule->set_gamma(spec.schedule.gamma);
  for (const ParameterGroup& group : spec.groups) {
    v1::ParameterGroup* out = proto.add_groups();
    out->set_pattern(group.pattern);
    out->set_weight_decay(group.weight_decay);
    out->set_learning_rate_scale(group.learning_rate_scale);
  }
  return proto;
}

v1::CheckpointPolicy ToProto(const CheckpointPolicy& policy) {
  v1::CheckpointPolicy proto;
  proto.set_every_steps(policy.every_steps);
  proto.set_every_ns(policy.every.count());
  proto.set_keep(policy.keep);
  proto.set_fail_job(policy.fail_job);
  return proto;
}

}  // namespace

Optimizer FromProto(v1::Optimizer optimizer) {
  switch (optimizer) {
    case v1::OPTIMIZER_SGD:
      return Optimizer::kSgd;
    case v1::OPTIMIZER_SGD_MOMENTUM:
      return Optimizer::kSgdMomentum;
    default:
      return Optimizer::kAdam;
  }
}

v1::Optimizer ToProto(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kSgd:
      return v1::OPTIMIZER_SGD;
    case Optimizer::kSgdMomentum:
      return v1::OPTIMIZER_SGD_MOMENTUM;
    case Optimizer::kAdam:
      return v1::OPTIMIZER_ADAM;
  }
  return v1::OPTIMIZER_UNSPECIFIED;
}

absl::StatusOr<Precision> FromProto(v1::Precision precision, absl::string_view of) {
  switch (precision) {
    case v1::PRECISION_UNSPECIFIED:
    case v1::PRECISION_GRAPH:
      return Precision::kGraph;
    case v1::PRECISION_BF16:
      return Precision::kBFloat16;
    case v1::PRECISION_FP16:
      return Precision::kFloat16;
    default:
      return WrongField(of, "precision", "unknown precision ", static_cast<int>(precision));
  }
}

v1::Precision ToProto(Precision precision) {
  switch (precision) {
    case Precision::kGraph:
      return v1::PRECISION_GRAPH;
    case Precision::kBFloat16:
      return v1::PRECISION_BF16;
    case Precision::kFloat16:
      return v1::PRECISION_FP16;
  }
  return v1::PRECISION_UNSPECIFIED;
}

CheckpointPolicy CheckpointsFromProto(const v1::JobSpec& spec) {
  const v1::CheckpointPolicy& proto = spec.checkpoints();
  CheckpointPolicy policy;
  policy.every_steps = proto.every_steps();
  policy.every = Nanos(proto.every_ns());
  if (proto.keep() != 0) policy.keep = proto.keep();
  policy.fail_job = proto.fail_job();
  policy.halfway = spec.max_restarts() > 0 && spec.on_loss() != v1::LOSS_POLICY_FAIL;
  return policy;
}

absl::StatusOr<TrainingSpec> TrainingFromProto(const v1::JobSpec& spec) {
  TrainingSpec training;
  ASSIGN_OR_RETURN(training.optimizer, FromProto(spec.optimizer()));
  training.max_gradient_norm = spec.optimizer().max_gradient_norm();
  ASSIGN_OR_RETURN(training.on_non_finite, FromProto(spec.on_nan()));
  ASSIGN_OR_RETURN(training.precision, FromProto(spec.precision(), kSpec));
  training.evaluation = {spec.evaluate_every(), spec.patience(), spec.min_delta()};
  if (spec.has_checkpoints()) training.checkpoints = CheckpointsFromProto(spec);
  return training;
}

void SetTraining(const TrainingSpec& training, v1::JobSpec& spec) {
  *spec.mutable_optimizer() = ToProto(training);
  spec.set_on_nan(ToProto(training.on_non_finite));
  spec.set_precision(ToProto(training.precision));
  spec.set_evaluate_every(training.evaluation.every);
  spec.set_patience(training.evaluation.patience);
  spec.set_min_delta(training.evaluation.min_delta);
  spec.clear_checkpoints();
  if (training.checkpoints.has_value())
    *spec.mutable_checkpoints() = ToProto(*training.checkpoints);
}

}  // namespace stagewright
