#include "planner_service/jobs/job_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <tuple>

#include "common/base/error_details.h"
#include "planner_service/jobs/job_proto.h"
#include "tests/planner_service/jobs/small_spec.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

absl::Status CheckSpec(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(const JobRequest request, FromProto(spec));
  return Check(request);
}

TEST(JobRequestTest, AcceptsAWholeSpec) {
  v1::JobSpec spec = testing::SmallSpec();
  EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec);
  spec.set_planner("graphpipe");
  spec.clear_steps();
  spec.set_epochs(2);
  EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec);
}

TEST(JobRequestTest, BoundsPrioritiesAndWhatCanBePreempted) {
  v1::JobSpec spec = testing::SmallSpec();
  for (const int32_t priority : {-1001, 1001}) {
    spec.set_priority(priority);
    EXPECT_EQ(CheckSpec(spec).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(CheckSpec(spec).message()),
                HasSubstr("spec.priority must be from -1000 to 1000"));
  }
  for (const int32_t priority : {-1000, 1000}) {
    spec.set_priority(priority);
    EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec);
  }
  spec.set_preemptible(true);
  EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec);
  spec.mutable_plan_options()->set_asynchronous(true);
  EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec);
}

TEST(JobRequestTest, AcceptsEveryPrecision) {
  v1::JobSpec spec = testing::SmallSpec();
  for (const v1::Precision precision :
       {v1::PRECISION_GRAPH, v1::PRECISION_FP16, v1::PRECISION_BF16}) {
    spec.set_precision(precision);
    EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec);
  }
  spec.mutable_plan_options()->set_asynchronous(true);
  EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec);
}

TEST(JobRequestTest, WhatTheOptimizerDoesNotUseIsIgnored) {
  v1::JobSpec spec = testing::SmallSpec();
  spec.mutable_optimizer()->set_momentum(7);
  spec.mutable_optimizer()->set_beta1(-1);
  spec.mutable_optimizer()->set_epsilon(-1);
  EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec);
  spec.mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD_MOMENTUM);
  spec.mutable_optimizer()->set_momentum(0.9);
  EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec);
}

struct BadField {
  const char* message;
  std::function<void(v1::JobSpec&)> spoil;
};

TEST(JobRequestTest, EveryBadFieldIsNamed) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  const BadField cases[] = {
      {"spec.graph is not set", [](auto& s) { s.clear_graph(); }},
      {"spec.graph: ",
       [](auto& s) { s.mutable_graph()->mutable_nodes(0)->mutable_args(0)->set_parameter(99); }},
      {"spec.graph: lengths[0]: another graph takes the same samples",
       [](auto& s) {
         const v1::Graph same = s.graph();
         *s.mutable_graph()->add_lengths() = same;
       }},
      {"spec.graph.lengths cannot be trained by an asynchronous plan",
       [](auto& s) {
         v1::Graph other = s.graph();
         other.mutable_inputs(0)->mutable_meta()->mutable_shape(1)->set_offset(77);
         *s.mutable_graph()->add_lengths() = other;
         s.mutable_plan_options()->set_asynchronous(true);
       }},
      {"spec.graph cannot be trained", [](auto& s) { s.mutable_graph()->clear_loss(); }},
      {"spec.weights_path", [](auto& s) { s.clear_weights_path(); }},
      {"spec.weights_path", [](auto& s) { s.set_weights_path("sha256:../../etc/passwd"); }},
      {"spec.data_path", [](auto& s) { s.clear_data_path(); }},
      {"spec.output_path", [](auto& s) { s.clear_output_path(); }},
      {"spec.mini_batch", [](auto& s) { s.set_mini_batch(0); }},
      {"spec.mini_batch", [](auto& s) { s.set_mini_batch(-8); }},
      {"spec.steps", [](auto& s) { s.set_steps(int64_t{1} << 60); }},
      {"spec.steps", [](auto& s) { s.clear_steps(); }},
      {"spec.steps", [](auto& s) { s.set_epochs(1); }},
      {"spec.steps", [](auto& s) { s.set_steps(-1); }},
      {"spec.steps", [](auto& s) { s.set_epochs(-1); }},
      {"spec.num_devices", [](auto& s) { s.set_num_devices(-1); }},
      {"spec.step_timeout_ns", [](auto& s) { s.set_step_timeout_ns(-1); }},
      {"spec.optimizer.kind", [](auto& s) { s.clear_optimizer(); }},
      {"spec.optimizer.learning_rate",
       [](auto& s) { s.mutable_optimizer()->set_learning_rate(0); }},
      {"spec.optimizer.learning_rate",
       [=](auto& s) { s.mutable_optimizer()->set_learning_rate(nan); }},
      {"spec.optimizer.learning_rate",
       [=](auto& s) { s.mutable_optimizer()->set_learning_rate(infinity); }},
      {"spec.optimizer.momentum",
       [](auto& s) { s.mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD_MOMENTUM); }},
      {"spec.optimizer.momentum",
       [](auto& s) {
         s.mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD_MOMENTUM);
         s.mutable_optimizer()->set_momentum(1);
       }},
      {"spec.optimizer.beta1",
       [](auto& s) {
         s.mutable_optimizer()->set_kind(v1::OPTIMIZER_ADAM);
         s.mutable_optimizer()->set_beta1(-0.1);
       }},
      {"spec.optimizer.beta2",
       [=](auto& s) {
         s.mutable_optimizer()->set_kind(v1::OPTIMIZER_ADAM);
         s.mutable_optimizer()->set_beta2(nan);
       }},
      {"spec.optimizer.weight_decay",
       [=](auto& s) { s.mutable_optimizer()->set_weight_decay(infinity); }},
      {"spec.optimizer.epsilon",
       [](auto& s) { s.mutable_optimizer()->set_kind(v1::OPTIMIZER_ADAM); }},
      {"spec.optimizer.max_gradient_norm",
       [](auto& s) { s.mutable_optimizer()->set_max_gradient_norm(-1); }},
      {"spec.plan_options.vertical_sync: needs spec.plan_options.asynchronous",
       [](auto& s) { s.mutable_plan_options()->set_vertical_sync(true); }},
      {"spec.optimizer.max_gradient_norm cannot be kept by an asynchronous plan",
       [](auto& s) {
         s.mutable_optimizer()->set_max_gradient_norm(1);
         s.mutable_plan_options()->set_asynchronous(true);
       }},
      {"spec.precision unknown precision 77",
       [](auto& s) { s.set_precision(static_cast<v1::Precision>(77)); }},
      {"spec.precision fp16: an asynchronous plan has no point",
       [](auto& s) {
         s.set_precision(v1::PRECISION_FP16);
         s.mutable_plan_options()->set_asynchronous(true);
       }},
      {"spec.precision bf16: mixed precision trains float32 parameters, \"",
       [](auto& s) {
         s.set_precision(v1::PRECISION_BF16);
         for (auto& parameter : *s.mutable_graph()->mutable_parameters())
           parameter.set_dtype(v1::DTYPE_FLOAT64);
       }},
      {"spec.optimizer.groups[0].pattern \"nothing.*\" matches no trainable parameter",
       [](auto& s) { s.mutable_optimizer()->add_groups()->set_pattern("nothing.*"); }},
      {"spec.optimizer.groups[0].weight_decay",
       [](auto& s) {
         s.mutable_optimizer()->add_groups()->set_pattern("*");
         s.mutable_optimizer()->mutable_groups(0)->set_weight_decay(-1);
       }},
      {"spec.optimizer.schedule.warmup_steps",
       [](auto& s) { s.mutable_optimizer()->mutable_schedule()->set_warmup_steps(-1); }},
      {"spec.optimizer.schedule.every",
       [](auto& s) {
         s.mutable_optimizer()->mutable_schedule()->set_decay(v1::LEARNING_RATE_DECAY_STEP);
       }},
      {"spec.evaluate_every needs spec.evaluation_data_path",
       [](auto& s) {
         s.clear_evaluation_data_path();
         s.set_evaluate_every(2);
       }},
      {"spec.patience needs spec.evaluate_every", [](auto& s) { s.set_patience(2); }},
      {"spec.min_delta", [=](auto& s) { s.set_min_delta(nan); }},
      {"spec.records.steps", [](auto& s) { s.mutable_records()->set_steps(-1); }},
      {"spec.records.compare_with needs spec.records.steps",
       [](auto& s) { s.mutable_records()->set_compare_with("/there"); }},
      {"spec.records cannot be kept of an asynchronous plan",
       [](auto& s) {
         s.mutable_records()->set_steps(2);
         s.mutable_plan_options()->set_asynchronous(true);
       }},
      {"spec.planner \"nobody\"", [](auto& s) { s.set_planner("nobody"); }},
  };
  for (const BadField& bad : cases) {
    v1::JobSpec spec = testing::SmallSpec();
    bad.spoil(spec);
    const absl::Status status = CheckSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message));
  }
}

// What a job brings is told when it is submitted, not when it is planned.
TEST(JobRequestTest, PlansAndOptionsThatNoDevicesCanFollowAreNamed) {
  const auto by_hand = [](const char* plan) {
    return [plan](v1::JobSpec& s) {
      s.set_planner("manual");
      s.mutable_plan_options()->set_manual(plan);
    };
  };
  const std::tuple<const char*, const char*, std::function<void(v1::JobSpec&)>> cases[] = {
      {"spec.mini_batch", ": must be at most 1048576 samples",
       [](auto& s) { s.set_mini_batch(int64_t{1} << 40); }},
      {"spec.plan_options.micro_batch", ": 3 does not divide",
       [](auto& s) { s.mutable_plan_options()->set_micro_batch(3); }},
      {"spec.plan_options.num_stages", ": must not be negative",
       [](auto& s) { s.mutable_plan_options()->set_num_stages(-1); }},
      {"spec.plan_options.num_stages", "2 is more than spec.plan_options.max_stages 1",
       [](auto& s) { s.mutable_plan_options()->set_max_stages(1); }},
      {"spec.plan_options.effort", ": must be between",
       [](auto& s) { s.mutable_plan_options()->set_effort(-1); }},
      {"spec.plan_options.bucket_bytes", ": must not be negative",
       [](auto& s) { s.mutable_plan_options()->set_bucket_bytes(-1); }},
      {"spec.plan_options.asynchronous", ": planner 'graphpipe'",
       [](auto& s) {
         s.set_planner("graphpipe");
         s.mutable_plan_options()->set_asynchronous(true);
       }},
      {"spec.plan_options.splits", "nobody",
       [](auto& s) {
         v1::OperatorSplit* split = s.mutable_plan_options()->add_splits();
         split->set_node("nobody");
         split->set_parts(2);
       }},
      {"spec.plan_options.manual", ": the planner \"manual\" needs a plan", by_hand("")},
      {"spec.plan_options.manual", ": stages[0].k is less than 1",
       by_hand(R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [0], "k": 0}]})")},
      {"spec.plan_options.manual", ": stages[0].devices has 2; there are devices 0 to 1",
       by_hand(R"({"micro_batch": 4, "stages": [{"nodes": ["*"], "devices": [2]}]})")},
      // The options do not tell that the plan is asynchronous.
      {"spec.optimizer.max_gradient_norm", " cannot be kept by an asynchronous plan",
       [](auto& s) {
         s.set_planner("manual");
         s.mutable_plan_options()->set_manual(
             R"({"micro_batch": 4, "asynchronous": true,
                 "stages": [{"nodes": ["*"], "devices": [0]}]})");
         s.mutable_optimizer()->set_max_gradient_norm(1);
       }},
      {"spec.strategy", ": stages: there is none",
       [](auto& s) { s.mutable_strategy()->set_mini_batch(8); }},
      {"spec.mini_batch", ": is 8, but the strategy is for 0",
       [](auto& s) { s.mutable_strategy()->add_stages(); }},
  };
  for (const auto& [field, told, spoil] : cases) {
    v1::JobSpec spec = testing::SmallSpec();
    spoil(spec);
    const absl::Status status = CheckSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << told;
    EXPECT_EQ(DetailsOf(status).field, field) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("spec."));
    EXPECT_THAT(std::string(status.message()), HasSubstr(told));
  }
}

}  // namespace
}  // namespace stagewright
