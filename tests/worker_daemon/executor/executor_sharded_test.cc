// Replicas that share out the optimizer's state, and the gradients, train what one device does,
// whatever the optimizer.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/program/trace.h"
#include "tests/worker_daemon/support/hand_job.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/plans/plans_by_hand.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

constexpr int64_t kMiniBatch = 8;
constexpr int64_t kSteps = 4;
constexpr int64_t kWidth = 5;

// Layers with weights and with parameters of fewer elements than there are replicas; the first and
// the last share their weight, one weight is frozen.
struct Model {
  explicit Model(DType dtype = DType::kFloat64) {
    const TensorMeta rows = Meta({-1, kWidth});
    const int x = make.AddInput("x", {-1, kWidth});
    const int target = make.AddInput("target", {-1, kWidth});
    const int tied = make.AddParameter("tied", {kWidth, kWidth});
    const int frozen = make.AddParameter("frozen", {kWidth, kWidth}, /*trainable=*/false);
    const int scale = make.AddParameter("scale", {1});
    const auto layer = [&](Argument value, Argument weight) {
      const int product = make.AddNode("aten.linear.default", {value, weight}, {rows});
      return Value(make.AddNode("aten.tanh.default", {Value(product)}, {rows}));
    };
    Argument value = layer(In(x), Param(tied));
    cut = std::get<ValueRef>(value.value).node.value();
    value = layer(value, Param(frozen));
    value = Value(make.AddNode("aten.mul.Tensor", {value, Param(scale)}, {rows}));
    for (int i = 0; i < 3; ++i)
      value = Value(make.AddLinear("l" + std::to_string(i), value, kWidth, kWidth));
    const int out = make.AddNode("aten.linear.default", {value, Param(tied)}, {rows});
    loss = make.AddNode("aten.mse_loss.default", {Value(out), In(target)}, {Meta({})});
    if (dtype == DType::kFloat32) ToFloat32(make);
    graph.emplace(make.Finish(loss));
  }
  GraphMaker make;
  int cut = 0, loss = 0;
  std::optional<Graph> graph;
};

std::map<std::string, at::Tensor> Data(at::ScalarType type = at::kDouble) {
  return {{"x", Random({kMiniBatch * kSteps, kWidth}, 31, type)},
          {"target", Random({kMiniBatch * kSteps, kWidth}, 32, type)}};
}

struct Rule {
  const char* name;
  OptimizerSpec spec;
  double clip = 0;
};

std::vector<Rule> Rules() {
  std::vector<Rule> rules;
  OptimizerSpec spec;
  spec.learning_rate = 0.05;
  spec.kind = Optimizer::kSgd;
  rules.push_back({"sgd", spec});
  spec.kind = Optimizer::kSgdMomentum;
  spec.nesterov = true;
  spec.weight_decay = 0.1;
  rules.push_back({"momentum", spec});
  spec.nesterov = false;
  spec.kind = Optimizer::kAdam;
  rules.push_back({"adam", spec});
  rules.push_back({"adam_clipped", spec, 0.05});
  spec.decoupled_weight_decay = true;
  spec.groups = {{"*.bias", 0, 2}};
  spec.schedule.decay = Decay::kCosine;
  rules.push_back({"adamw_groups", spec});
  return rules;
}

class Shares : public ::testing::TestWithParam<Rule> {};

TEST_P(Shares, TrainTheSameAsOneDevice) {
  const Rule& rule = GetParam();
  const Model model;
  HandJob job(*model.graph, Data(), kSteps);
  job.spec.training.optimizer = rule.spec;
  job.spec.training.max_gradient_norm = rule.clip;
  const auto train = [&](const Strategy& strategy) {
    auto programs = LowerBoth(*model.graph, strategy, rule.clip > 0);
    EXPECT_TRUE(programs.ok()) << programs.status();
    DeviceJob own = job.spec;
    own.program = programs->training;
    own.evaluation = programs->evaluation;
    auto result = TrainLocally(own);
    if (result.ok()) {
      EXPECT_EQ(CheckTrace(*own.program, result->trace), absl::OkStatus());
      EXPECT_EQ(strategy.optimizer_sharding != OptimizerSharding::kNone,
                std::any_of(result->trace.begin(), result->trace.end(), [](const TraceEvent& e) {
                  return e.action.kind == ActionKind::kAllGather;
                }));
    }
    return result;
  };
  const auto expected = train(PlanByHand(*model.graph, kMiniBatch, {{model.loss, kMiniBatch}}));
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<Strategy> plans;
  for (const int replicas : {2, 3}) {
    plans.push_back(PlanByHand(*model.graph, kMiniBatch, {{model.loss, 4, replicas}}));
    // Two stages, of which both have replicas and share a parameter.
    plans.push_back(
        PlanByHand(*model.graph, kMiniBatch, {{model.cut, 4, replicas}, {model.loss, 4, 2, true}}));
  }
  plans.push_back(SplitByHand(*model.graph, kMiniBatch, {{model.loss, 4, 3}}));
  for (size_t p = 0; p < plans.size(); ++p) {
    for (const int64_t bucket : {int64_t{0}, int64_t{1}, int64_t{300}}) {
      for (const OptimizerSharding sharding :
           {OptimizerSharding::kStates, OptimizerSharding::kGradients}) {
        SCOPED_TRACE(absl::StrCat("plan ", p, ", buckets of ", bucket,
                                  ", shared out: ", OptimizerShardingName(sharding)));
        Strategy strategy = plans[p];
        strategy.bucket_bytes = Bytes(bucket);
        strategy.optimizer_sharding = sharding;
        const auto found = train(strategy);
        ASSERT_TRUE(found.ok()) << found.status();
        ExpectSame(*found, *expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, Shares, ::testing::ValuesIn(Rules()),
                         [](const auto& param) { return std::string(param.param.name); });

// Half precision: the same as with whole states on the same devices, scales of the loss included.
TEST(SharesInHalfPrecision, TrainTheSameAsWholeStates) {
  const Model model(DType::kFloat32);
  for (const Precision precision : {Precision::kBFloat16, Precision::kFloat16}) {
    HandJob job(*model.graph, Data(at::kFloat), kSteps);
    job.spec.training.precision = precision;
    job.spec.training.optimizer = Rules()[2].spec;
    Strategy strategy = PlanByHand(*model.graph, kMiniBatch, {{model.loss, 4, 2}});
    strategy.bucket_bytes = Bytes(1);
    TrainingResult results[3];
    for (OptimizerSharding sharding :
         {OptimizerSharding::kNone, OptimizerSharding::kStates, OptimizerSharding::kGradients}) {
      strategy.optimizer_sharding = sharding;
      const auto programs = LowerBoth(*model.graph, strategy, precision == Precision::kFloat16);
      ASSERT_TRUE(programs.ok()) << programs.status();
      job.spec.program = programs->training;
      const auto found = TrainLocally(job.spec);
      ASSERT_TRUE(found.ok()) << found.status();
      results[static_cast<int>(sharding)] = *found;
    }
    for (const TrainingResult* shared : {&results[1], &results[2]}) {
      ASSERT_EQ(results[0].losses.size(), shared->losses.size());
      for (size_t i = 0; i < results[0].losses.size(); ++i)
        EXPECT_NEAR(shared->losses[i], results[0].losses[i], 1e-6);
      for (const auto& [name, tensor] : results[0].parameters)
        EXPECT_LT(RelativeError(shared->parameters.at(name), tensor), 1e-6) << name;
    }
  }
}

}  // namespace
}  // namespace stagewright::testing
